"""What a task is and what may happen to it. Imports nothing of api, tasks or providers.

lifecycle  the state machine as data, and decide()      failures   kinds of failure and what each means
contract   parameters, bounds, what a model can make    presets    style, mode, size, upscale
backoff    waits          pricing   cost                fairness   who is next
settings   weir.toml and the environment                ids        identifiers on the wire
tables     the schema     db        engine, unit of work
store      task rows: the only writer of status         line, accounts, ledger   the other statements
"""
