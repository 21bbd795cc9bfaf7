"""The simulator: a real HTTP server that speaks vendors' dialects, makes real files, and fails as told.

It is the vendor behind `make run`, the tests and the benchmark, and what an operator rehearses with.
Nothing here may import the rest of Weir; nothing in Weir but tests and the start script may import
this package. Map: `server` sockets, `wire` broken answers, `app` routes, `world` the way of a call,
`faults` / `rules` / `directives` the script, `ledger` jobs, `files` / `pictures` / `clips` /
`lettering` media, `dashscope*` the first dialect (base `http://HOST:PORT/dashscope/api/v1`).

    with Simulator(image_s=(0.1, 0.2)) as sim:
        dashscope.base_http_api_url = sim.dashscope

Control (JSON; what is wrong with a body comes back as a 400 that names it):

| route | does |
|---|---|
| `GET /_sim/health` | `status`, `up_s`, `dialects` |
| `GET, POST, DELETE /_sim/faults` | the rules with their counters; append a list of rules; take all away |
| `GET, POST /_sim/config` | the settings of `config.Config`; change those that are sent |
| `GET /_sim/ledger?since=S&jobs=0` | `totals` per dialect, `in_flight` per key, `accepted` jobs since S |
| `POST /_sim/reset` | drop jobs, counters and rules; settings stay |
| `POST /_sim/forget` | hide all jobs from their owners (a restart that forgets); the ledger keeps them |

A rule: `{"on": "submit|query|list|cancel|fetch|any", "dialect": null, "match": {"prompt_contains": "x",
"model": "y"}, "times": 1, "after": 0, "probability": 1, "seed": 0, "do": {...}}`; only `do` must be
there. `times` null = always, `after` K = let K matching calls pass first. Of all rules the first
that strikes is done, alone. What `do` may hold (several together where that makes sense):

| `do` | on | what happens |
|---|---|---|
| `latency_s` | any | that many seconds pass before anything else |
| `forget` | any | the vendor forgets every job first, then answers |
| `reset` | any | connection reset, nothing done (without `match`: request body unread) |
| `status`, `code`, `message` | any | that HTTP status with the vendor's error body; 200 = error in a 200 |
| `body` | any | with `status`: that text or JSON as the body |
| `headers` | any | headers added to whatever is answered |
| `html` | any | an HTML error page, status 502 unless `status` says otherwise |
| `retry_after` | any | with `status` or `html`: the `Retry-After` header |
| `accepted` | submit, cancel | with `status` or `html`: it is carried out all the same, then answered so |
| `hold_s` | any | carried out at once, answered that many seconds later |
| `lost_answer` | any | carried out, then the connection is `reset` or `close`d without an answer |
| `drip_s`, `drip_bytes` | any | body in pieces of that many bytes (1), that many seconds apart |
| `cut_after` | any | whole Content-Length promised, connection closed after that many bytes |
| `half_json` | any | the first half of the body, as if it were all |
| `status_word` | submit, query | this word as task status (of every query; of this one), no result |
| `unknown_job` | query | answered as for an id that nobody knows |
| `no_payload` | submit, query | succeeded, without results |
| `stuck` | submit | the job stays `PENDING` or `RUNNING` for ever |
| `slow_s` | submit | the job takes that many seconds |
| `fail`, `fail_message` | submit | the job ends failed with this code and text |
| `partial` | submit | the first K images succeed, the rest are error entries; 0 = the job fails |
| `expired_link` | submit, fetch | links born expired; this download refused as expired |
| `redirect` | submit, fetch | 302 to this path or URL; `{file}` in it is name and query of the file, and `/files/moved/{file}` serves it |
| `content_type` | submit, fetch | another media type than the bytes have |
| `wrong_bytes` | submit, fetch | other bytes under the right type: `html`, `text` (these two say so), `png`, `jpeg`, `webp`, `mp4`, `empty` |
| `huge_bytes` | submit, fetch | a file of that many bytes that begins like the right one |

A prompt can ask by itself, `a red cup [[sim: slow 20]] [[sim: partial 1]]`; TIMES counts submits of
this prompt (1 unless given), or calls about this job:

| directive | same as |
|---|---|
| `fail [CODE]` | `fail` (InternalError.Algo) |
| `filtered` | `fail` with DataInspectionFailed |
| `reject [CODE]` | `status` 400 with that code (DataInspectionFailed), each time |
| `stuck [PENDING or RUNNING]` | `stuck` |
| `slow SECONDS` | `slow_s` |
| `partial COUNT` | `partial` |
| `no-payload` | `no_payload` |
| `word WORD` | `status_word` in every query |
| `hold SECONDS [TIMES]` | `hold_s` |
| `lost-answer [TIMES]` | `lost_answer` reset |
| `reset [TIMES]` | `reset` |
| `half [TIMES]` | `half_json` on the submit's answer |
| `STATUS [TIMES [RETRY_AFTER]]` | `429 3 2`, `503`: `status` (502, 504, 524 as `html`), nothing accepted |
| `accepted-STATUS [TIMES]` | the same after the job was accepted |
| `poll-STATUS [TIMES]` | the same for the first queries of the job |
| `poll-reset`, `poll-half`, `poll-unknown [TIMES]` | `reset`, `half_json`, `unknown_job` on its first queries |
| `poll-word WORD [TIMES]` | `status_word` in its first queries |
| `expired` | `expired_link` |
| `redirect URL` | `redirect` |
| `file-STATUS [TIMES]` | `status` on the first downloads |
| `file-cut BYTES [TIMES]`, `file-drip SECONDS [TIMES]` | `cut_after`, `drip_s` on the first downloads |
| `file-type TYPE`, `file-bytes KIND`, `file-huge BYTES` | `content_type`, `wrong_bytes`, `huge_bytes` |
"""  # noqa: E501 - a table's line cannot be broken

from providers.sim.app import create_sim_app
from providers.sim.config import BadSettingError, Config, Limits
from providers.sim.simulator import Simulator, serve

__all__ = ["BadSettingError", "Config", "Limits", "Simulator", "create_sim_app", "serve"]
