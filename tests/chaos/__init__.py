"""The chaos run: a few hundred tasks through every fault at once, and at the end what the product promises is counted.

    python -m tests.chaos --seed 7 --tasks 300        (or: make chaos SEED=7)

Map: `plan` everything that is drawn, from the seed alone; `cutter` the proxy that cuts inside COMMIT; `rig` servers,
processes, proxies and the acts that hurt them; `crowd` the clients; `watch` what is sampled on the way; `evidence` what
is read at the end; `verdict` the invariants over it; `run` the order of all this and the report.

The seed decides what is asked, what fails and when it is told to. It does not decide how threads and processes
interleave, so that a run which breaks is a lead and not a recording: each break found here becomes a small test of its
own (tests/integration/test_chaos_finds.py).
"""
