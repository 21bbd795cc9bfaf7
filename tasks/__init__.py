"""Wake-up calls: Celery tasks of a few lines over plain functions. Knows Celery; everything that lasts is in rows.

A message says "look at row X, I was sent for version N" and carries nothing else. Its Celery id is
`<task_id>.<version>`, a wave's `<provider>.<type>.<version>`, so that an operator finds a task in Flower by our id.
"""

from celery import Celery

from tasks import transport

transport.install()
app = Celery("weir")
app.config_from_object("celeryconfig")
