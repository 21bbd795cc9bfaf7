"""A model of one task among two workers, one polling chain, a sweep, a caller and a vendor, and a search of all of it.

The model applies the real lifecycle.TRANSITIONS. A version is kept as one bit per holder, "still the row's own": since
versions only rise and are only compared for equality, nothing else about them can matter, and the space is finite
without a bound on time. Each step is one commit, or one call with its answer in hand. Messages may be lost, doubled
(delivery leaves the message where it is) and late; a message of an older version is dropped at once, since the fence
refuses it whenever it comes. A worker may die between any two steps. A submit whose answer was lost may reach the
vendor much later. Time is not modelled: every time-out may strike at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.lifecycle import FINAL, LIVE, Stage, Status
from tests.protocol_rows import (
    ACCEPTED,
    ADOPTED,
    AGAIN,
    ANSWERED,
    ASKING,
    BAD,
    BEGUN,
    BITS,
    CALL,
    CANCEL,
    CLAIMED,
    CLAIMED_LATE,
    CONFIRMED,
    DEAD,
    DONE,
    DUE,
    FETCH,
    FETCHED,
    FOUND,
    GIVEN_UP,
    GIVEN_UP_WRONGLY,
    GOOD,
    IDLE,
    LOOKING,
    NEVER_BEGUN,
    NO,
    NO_BYTES,
    NO_IDEA,
    NOBODY,
    NOT_TAKEN,
    NOTHING,
    OBSERVED,
    PLANNING,
    POLL,
    READY,
    RECEIVED,
    RECHECKING,
    RECONCILE,
    REFUSED,
    RETURNED,
    RETURNED_IN_DOUBT,
    ROWS,
    RUNG,
    SETTLED,
    STOPPED,
    STOPPED_IN_DOUBT,
    STOPPING,
    STORED,
    SUBMIT,
    UNCLEAR,
    UNDER_WAY,
    UNFENCED,
    WORKING,
    Move,
    Row,
    Rules,
    State,
    Violation,
    Worker,
    on_chain,
    on_task,
    place,
)

_STALE_TASK: dict[Worker, Worker] = {}
_STALE_CHAIN: dict[Worker, Worker] = {}


class Model:
    """The successors of a state under `rules`."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    # --- the two fences ---

    def moved(self, s: State, who: int, row: int, *, net: int = 0, then: Worker = NOBODY) -> State:
        """`s` after a transition by worker `who` (-1: nobody): every other holder of the old version is stale."""
        if ROWS[row].status in FINAL and ROWS[s.row].attempt != s.workers[who].attempt and who >= 0:
            raise Violation("an attempt was ended by what was seen of another")
        kept = s.net & (POLL | UNFENCED) if self.rules.task_fence else s.net
        one, two = s.workers
        workers = (self._stale_task(one), self._stale_task(two)) if self.rules.task_fence else s.workers
        return self.put(State(row, s.jobs, s.awake, kept | net, workers), who, then)

    def chain_moved(self, s: State, who: int, *, awake: bool, net: int, then: Worker = NOBODY) -> State:
        """`s` after a new version of the chain."""
        fenced = self.rules.chain_fence
        kept = s.net & ~POLL if fenced else s.net
        one, two = s.workers
        workers = (self._stale_chain(one), self._stale_chain(two)) if fenced else s.workers
        return self.put(State(s.row, s.jobs, awake, kept | net, workers), who, then)

    @staticmethod
    def put(s: State, who: int, worker: Worker) -> State:
        """`s` with worker `who` replaced. Two workers are alike, so their order is no part of the state."""
        if who < 0:
            return s
        other = s.workers[1 - who]
        pair = (worker, other) if worker <= other else (other, worker)
        return State(s.row, s.jobs, s.awake, s.net, pair)

    @staticmethod
    def _stale_task(w: Worker) -> Worker:
        if w not in _STALE_TASK:
            _STALE_TASK[w] = w._replace(task_current=False)
        return _STALE_TASK[w]

    @staticmethod
    def _stale_chain(w: Worker) -> Worker:
        if w not in _STALE_CHAIN:
            _STALE_CHAIN[w] = w._replace(chain_current=False)
        return _STALE_CHAIN[w]

    # --- what may happen next ---

    def after(self, s: State) -> Iterator[tuple[str, State]]:
        """Every next state with the name of the step."""
        for who, worker in enumerate(s.workers):
            if worker.at == IDLE:
                if who == 0 or s.workers[0].at != IDLE:
                    yield from self.deliver(s, who)
            else:
                yield from STEPS[worker.at](self, s, who, worker)
                if not self.rules.faultless:
                    yield "die", self.put(s, who, NOBODY)
        if not self.rules.faultless:
            yield from self.sweep(s)
            for bit in BITS:
                if s.net & bit:
                    yield "lose", State(s.row, s.jobs, s.awake, s.net & ~bit, s.workers)
        yield from self.caller(s)
        yield from self.arrivals(s)

    def caller(self, s: State) -> Iterator[tuple[str, State]]:
        """Cancel at any moment; repeat the key after a certain failure, once."""
        row = ROWS[s.row]
        if row.status is Status.PENDING:
            yield "cancel", self.moved(s, -1, (STOPPED_IN_DOUBT if self.doubtful(row) else STOPPED)(s.row))
        if row.status is Status.RUNNING and not row.cancel:
            net = CANCEL if row.stage is Stage.GENERATING else 0
            yield "ask to cancel", s._replace(row=place(row._replace(cancel=True)), net=s.net | net)
        if row.attempt == 0 and (again := AGAIN(s.row)) >= 0:
            coming = s.net & UNDER_WAY[0] or any(w.at == CALL and w.attempt == 0 for w in s.workers)
            if s.jobs[0] in (WORKING, DONE) or (s.jobs[0] == NOTHING and coming):
                raise Violation("bought again although the first job may be running")
            if self.rules.restarts:
                yield "restart", self.moved(s, -1, again, net=SUBMIT)

    def arrivals(self, s: State) -> Iterator[tuple[str, State]]:
        """A submit that nobody waits for any more reaches the vendor after all."""
        for attempt, bit in enumerate(UNDER_WAY):
            if s.net & bit:
                yield "late arrival", self.accept(s._replace(net=s.net & ~bit), attempt)

    def accept(self, s: State, attempt: int) -> State:
        """The vendor takes a submit."""
        if s.jobs[attempt] == NOTHING:
            return self.job(s, attempt, WORKING)
        if not self.rules.honours_reference:
            raise Violation("one attempt was accepted twice")
        return s

    def sweep(self, s: State) -> Iterator[tuple[str, State]]:
        """Ring what may have been forgotten, end what is late; at any moment, since time is not modelled."""
        row = ROWS[s.row]
        if row.status in LIVE:
            yield from self.deadline(s, row)
            yield from self.ring(s, row)
        elif row.status is Status.TIMEOUT and not row.certain and not s.net & RECONCILE:
            yield "ring reconcile", s._replace(net=s.net | RECONCILE)

    def deadline(self, s: State, row: Row) -> Iterator[tuple[str, State]]:
        """The end that needs nobody but the sweep."""
        if row.status is Status.PENDING and not self.doubtful(row):
            yield "deadline", self.moved(s, -1, NEVER_BEGUN(s.row))
            return
        if row.status is Status.PENDING:
            yield "deadline", self.moved(s, -1, GIVEN_UP[0](s.row))
            return
        for end in GIVEN_UP_WRONGLY if self.rules.doubt_is_certain else GIVEN_UP:
            yield "deadline", self.moved(s, -1, end(s.row))

    def ring(self, s: State, row: Row) -> Iterator[tuple[str, State]]:
        """A lost wake-up, woken."""
        if row.status is Status.PENDING:
            yield "ring submit", s._replace(net=s.net | SUBMIT)
            return
        if row.stage is Stage.GENERATING:
            yield "restart chain", self.chain_moved(s, -1, awake=True, net=POLL)
        net = {Stage.SUBMITTING: RECONCILE, Stage.FETCHING: FETCH}.get(row.stage or Stage.GENERATING, 0)
        yield "ring", self.moved(s, -1, RUNG(s.row), net=net)

    def deliver(self, s: State, who: int) -> Iterator[tuple[str, State]]:
        """A free worker takes a message; the message stays, since it may come twice."""
        row = ROWS[s.row]
        if s.net & SUBMIT:
            yield from self.take_submit(s, who, row)
        if s.net & FETCH and row.stage is Stage.FETCHING:
            for hand in (GOOD, BAD):
                yield "fetch", self.put(s, who, on_task(FETCHED, row.attempt, hand))
        if s.net & RECONCILE and (row.stage is Stage.SUBMITTING or row.status is Status.TIMEOUT):
            yield "reconcile", self.put(s, who, on_task(ASKING, row.attempt))
        if s.net & CANCEL and row.stage is Stage.GENERATING:
            yield "take cancel", self.put(s, who, on_task(STOPPING, row.attempt))
        if s.net & POLL:
            yield "begin round", self.chain_moved(s, who, awake=True, net=0, then=on_chain(BEGUN))

    def take_submit(self, s: State, who: int, row: Row) -> Iterator[tuple[str, State]]:
        """Claim, in a commit of its own, before the call."""
        calling = on_task(CALL, row.attempt)
        if not self.rules.claim_before_call and row.status is Status.PENDING:
            yield "begin", self.put(s, who, calling)
        elif (claimed := CLAIMED(s.row)) >= 0:
            yield "claim", self.moved(s._replace(workers=s.workers), who, claimed, then=calling)

    @staticmethod
    def job(s: State, attempt: int, job: int) -> State:
        """`s` with the vendor's job of one attempt in another state."""
        return s._replace(jobs=(job, s.jobs[1]) if attempt == 0 else (s.jobs[0], job))

    # --- a worker's next step ---

    def allowed(self, w: Worker) -> bool:
        """Whether the fence lets this worker's change through."""
        return w.task_current or not self.rules.task_fence

    def call(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """The submit call. Whether it is accepted, when, and what is heard of it are three things."""
        w = w._replace(at=ANSWERED)
        known = s.jobs[w.attempt] != NOTHING
        for hand in (NOT_TAKEN,) if known else (NOT_TAKEN, REFUSED):
            yield "call", self.put(s, who, w._replace(hand=hand))
        cut = s._replace(net=s.net | UNDER_WAY[w.attempt])
        yield "call cut", self.put(cut, who, w._replace(hand=UNCLEAR))
        accepted = self.accept(s, w.attempt)
        for hand in (ACCEPTED, UNCLEAR):
            yield "call accepted", self.put(accepted, who, w._replace(hand=hand))

    def doubtful(self, row: Row) -> bool:
        """Whether a no says nothing about an earlier call of the same attempt."""
        return row.doubt and not self.rules.doubt_forgotten

    def answered(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Write what the call said, if the row is still as it was claimed."""
        if w.hand == UNCLEAR:
            yield "ask", self.put(s, who, w._replace(at=ASKING, hand=0))
            return
        move, net, then = {
            ACCEPTED: (RECEIVED if self.rules.claim_before_call else CLAIMED_LATE, 0, Worker(ADOPTED)),
            REFUSED: (NO_IDEA if self.doubtful(ROWS[s.row]) else NO, 0, NOBODY),
            NOT_TAKEN: (RETURNED, SUBMIT, NOBODY),
        }[w.hand]
        row = move(s.row) if self.allowed(w) else -1
        yield ("write answer", self.moved(s, who, row, net=net, then=then)) if row >= 0 else self.lost(s, who)

    def lost(self, s: State, who: int) -> tuple[str, State]:
        """Someone else was first: change nothing, but keep the receipt of a job that an ended row does not know."""
        row, w = ROWS[s.row], s.workers[who]
        if w.hand == ACCEPTED and w.at in (ANSWERED, FOUND) and row.status in FINAL and row.attempt == w.attempt:
            s = s._replace(row=place(row._replace(receipt=True)))
        return "lose the race", self.put(s, who, NOBODY)

    def adopted(self, s: State, who: int, _: Worker) -> Iterator[tuple[str, State]]:
        """After the receipt is committed: make sure the chain wakes, pass on a cancel that was asked for meanwhile."""
        wish = CANCEL if ROWS[s.row].cancel else 0
        yield from self.hurry(s._replace(net=s.net | wish), who)

    def hurry(self, s: State, who: int) -> Iterator[tuple[str, State]]:
        """Wake a sleeping chain; one that is awake is soon enough, or is pulled forward."""
        if s.awake:
            yield "soon enough", self.put(s, who, NOBODY)
        yield "hurry chain", self.chain_moved(s, who, awake=True, net=POLL)

    def asking(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Ask what became of it: the vendor may know, or may not be able to tell."""
        known = {NOTHING: (), WORKING: (ACCEPTED,), DONE: (GOOD, ACCEPTED), DEAD: (BAD, ACCEPTED)}
        for hand in (UNCLEAR, *known[s.jobs[w.attempt]]):
            yield "find", self.put(s, who, w._replace(at=FOUND, hand=hand))

    def found(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Write what the vendor said about a job nobody was sure of."""
        row = ROWS[s.row]
        repeat = self.rules.resubmit or self.rules.honours_reference
        moves: list[tuple[Move, int, Worker]] = []
        if row.status is Status.TIMEOUT:
            moves += [(SETTLED[w.hand], 0, NOBODY)] if w.hand in SETTLED else []
        elif w.hand == UNCLEAR:
            again = (RETURNED_IN_DOUBT, SUBMIT, NOBODY)
            moves += [(NO_IDEA, 0, NOBODY), again] if repeat else [(NO_IDEA, 0, NOBODY)]
        else:
            moves.append((RECEIVED, 0, Worker(ADOPTED)))
        legal = [(after, net, then) for move, net, then in moves if self.allowed(w) and (after := move(s.row)) >= 0]
        yield from (("write found", self.moved(s, who, after, net=net, then=then)) for after, net, then in legal)
        if not legal:
            yield self.lost(s, who)

    def fetched(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """The bytes are stored, or will not come, or are tried again."""
        after = (STORED if w.hand == GOOD else NO_BYTES)(s.row) if self.allowed(w) else -1
        yield ("write end", self.moved(s, who, after)) if after >= 0 else self.lost(s, who)
        if w.hand == BAD and self.allowed(w) and (after := READY(s.row)) >= 0:
            yield "fetch again", self.moved(s, who, after, net=FETCH)

    def stopping(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Ask the vendor to stop the job; too late, it says no and the task goes on."""
        if s.jobs[w.attempt] == WORKING:
            stopped = self.job(s, w.attempt, DEAD)
            yield "vendor cancels", self.put(stopped, who, w._replace(at=CONFIRMED))
        yield "vendor refuses", self.put(s, who, NOBODY)

    def confirmed(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """The vendor confirmed a cancel: read the row anew and end it, unless it ended or began again meanwhile."""
        row = ROWS[s.row]
        same = row.status is Status.RUNNING and row.receipt and row.attempt == w.attempt
        yield ("write cancel", self.moved(s, who, STOPPED(s.row))) if same else self.lost(s, who)

    def begun(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Read what is due."""
        row = ROWS[s.row]
        due = w._replace(at=DUE, task_current=True, attempt=row.attempt)
        yield "read due", self.put(s, who, due if row.stage is Stage.GENERATING else w._replace(at=LOOKING))

    def due(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Ask the vendor; it may have no news, or be done, or have failed."""
        yield "no news", self.put(s, who, on_chain(LOOKING, current=w.chain_current))
        for job, hand in ((DONE, GOOD), (DEAD, BAD)):
            if s.jobs[w.attempt] in (WORKING, job):
                yield "news", self.put(self.job(s, w.attempt, job), who, w._replace(at=OBSERVED, hand=hand))

    def observed(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """A round's decision about the row, then on to planning, whether or not it won."""
        on = on_chain(LOOKING, current=w.chain_current)
        if w.hand == GOOD:
            move, net = READY, FETCH
        else:
            move, net = STOPPED if ROWS[s.row].cancel else NO, 0
        after = move(s.row) if self.allowed(w) else -1
        yield "write round", self.moved(s, who, after, net=net, then=on) if after >= 0 else self.put(s, who, on)

    def looking(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Read whether anything is left to poll."""
        due = ROWS[s.row].stage is Stage.GENERATING
        yield "look", self.put(s, who, w._replace(at=PLANNING, hand=int(due)))

    def planning(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Say when the next round is, or fall asleep, if the chain is still this worker's."""
        if self.rules.chain_fence and not w.chain_current:
            yield "superseded", self.put(s, who, NOBODY)
        elif w.hand:
            yield "plan", self.chain_moved(s, who, awake=True, net=POLL)
        else:
            then = on_chain(RECHECKING) if self.rules.recheck else NOBODY
            yield "sleep", self.chain_moved(s, who, awake=False, net=0, then=then)

    def rechecking(self, s: State, who: int, w: Worker) -> Iterator[tuple[str, State]]:
        """Look again after falling asleep: a receipt may have been committed in between."""
        fenced_off = self.rules.chain_fence and not w.chain_current
        if ROWS[s.row].stage is Stage.GENERATING and not fenced_off:
            yield "plan after all", self.chain_moved(s, who, awake=True, net=POLL)
        else:
            yield "rest", self.put(s, who, NOBODY)


STEPS = {
    CALL: Model.call,
    ANSWERED: Model.answered,
    ADOPTED: Model.adopted,
    ASKING: Model.asking,
    FOUND: Model.found,
    FETCHED: Model.fetched,
    STOPPING: Model.stopping,
    CONFIRMED: Model.confirmed,
    BEGUN: Model.begun,
    DUE: Model.due,
    OBSERVED: Model.observed,
    LOOKING: Model.looking,
    PLANNING: Model.planning,
    RECHECKING: Model.rechecking,
}
