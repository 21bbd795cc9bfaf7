"use strict";
// A file of its own: the page's policy forbids scripts inside the page.
window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null, // the validator's badge would be asked of a foreign host
  persistAuthorization: false, // a key does not outlive the tab
});
