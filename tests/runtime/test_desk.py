"""The front end's books: who is admitted and who is told to come again."""

import pytest

from trmodel.errors import InfeasibleError, InputError
from trmodel.runtime.desk import Busy, Desk
from trmodel.runtime.messages import (
    Inventory,
    InventoryReply,
    Kind,
    Owned,
    PeerReq,
    Report,
    Sampling,
)

EAGER = ((1, 1),)


def sent(desk, kind):
    return [m for _, m in desk.outgoing if isinstance(m, PeerReq) and m.kind is kind]


def finish(desk, number):
    desk.receive(0, last_report(desk, number))


def last_report(desk, number):
    """As if all tokens came in one step."""
    entry = desk.entries[number]
    tokens = (1,) * entry.sampling.max_tokens
    return Report(number, entry.handoff, entry.steps + 1, tokens, 0, "length")


def test_a_request_is_admitted_when_its_longest_reply_has_room():
    desk = Desk(2, 0, max_live=8, max_queue=2, vectors=EAGER, kv_tokens=100)
    first = desk.submit((1,) * 10, Sampling(max_tokens=50))
    second = desk.submit((1,) * 10, Sampling(max_tokens=50))
    third = desk.submit((1,) * 5, Sampling(max_tokens=5))
    assert (desk.n, desk.queued) == (1, 2), "who waits longest comes first, though it needs more"
    with pytest.raises(Busy):
        desk.submit((1,), Sampling(max_tokens=1))
    finish(desk, first)
    assert (desk.n, desk.queued) == (2, 0)
    assert [m.request for m in sent(desk, Kind.new)] == [first, second, third]
    for number in (second, third):
        desk.abort(number)
    desk.submit((1,) * 50, Sampling(max_tokens=50))
    assert desk.n == 1


def test_without_a_queue_only_those_are_taken_who_can_run():
    desk = Desk(2, 0, max_live=1, max_queue=0, vectors=EAGER)
    number = desk.submit((1,), Sampling())
    with pytest.raises(Busy, match="1 requests run and 0 wait"):
        desk.submit((1,), Sampling())
    desk.abort(number)
    desk.submit((1,), Sampling())


def test_an_end_is_told_to_every_model_once():
    desk = Desk(3, 0, max_live=2, max_queue=0, vectors=((1, 1, 1),))
    number = desk.submit((1,), Sampling(max_tokens=2))
    report = last_report(desk, number)
    desk.receive(0, report)
    desk.receive(0, report)
    assert len(sent(desk, Kind.finished)) == 3
    assert [event.finish for event in desk.events if event.finish] == ["length"]


@pytest.mark.parametrize("vectors", [(), ((1,),), ((0, 1),)])
def test_tables_of_the_wrong_shape_are_refused(vectors):
    desk = Desk(2, 0, max_live=2, max_queue=0, vectors=EAGER)
    with pytest.raises(InputError):
        desk.propose(vectors)
    with pytest.raises(InfeasibleError):
        desk.propose(((1, 2),))
    assert desk.table_version == 1


def stays(desk, number, step, token, owner):
    return Report(number, desk.entries[number].handoff, step, (token,), owner)


def test_a_rebuild_goes_on_from_before_a_report_that_was_lost():
    """Model 0 made steps 1 and 3, model 1 the second, whose report went down with it."""
    desk = Desk(2, 0, max_live=2, max_queue=0, vectors=EAGER)
    number = desk.submit((9,), Sampling(max_tokens=8))
    old = desk.entries[number].handoff
    desk.receive(0, stays(desk, number, 1, 10, 1))
    desk.receive(0, stays(desk, number, 3, 30, 1))
    desk.outgoing.clear()
    desk.restarted(1, 2)
    query = next(m.query for _, m in desk.outgoing if isinstance(m, Inventory))
    desk.receive(0, InventoryReply(0, query, ()))
    (rebuilt,) = sent(desk, Kind.new)
    assert (rebuilt.steps, rebuilt.token_ids, rebuilt.destination) == (1, (9, 10), 1)
    assert rebuilt.handoff > old + 1_000_000
    late = Report(number, old + 2, 2, (99,), 0)
    desk.receive(0, late)
    desk.receive(1, stays(desk, number, 2, 20, 0))
    assert desk.entries[number].output == [10, 20]


def test_the_owner_tells_what_reports_that_were_lost_would_have():
    desk = Desk(2, 0, max_live=2, max_queue=0, vectors=EAGER)
    number = desk.submit((9,), Sampling(max_tokens=8))
    desk.receive(0, stays(desk, number, 1, 10, 1))
    desk.restarted(1, 2)
    query = next(m.query for _, m in desk.outgoing if isinstance(m, Inventory))
    owned = Owned(number, desk.entries[number].handoff + 2, 3, 1, (20, 30))
    desk.receive(0, InventoryReply(0, query, (owned,)))
    assert desk.entries[number].output == [10, 20, 30]
    assert len(sent(desk, Kind.new)) == 1, "it was not rebuilt"


def test_a_model_that_goes_on_with_a_request_that_is_over_is_told_so():
    """It was started anew when the others were told, and had it from one that did not know yet."""
    desk = Desk(2, 0, max_live=2, max_queue=0, vectors=EAGER)
    number = desk.submit((9,), Sampling(max_tokens=8))
    late = stays(desk, number, 1, 10, 0)
    desk.abort(number)
    desk.outgoing.clear()
    desk.receive(1, late)
    (told,) = sent(desk, Kind.aborted)
    assert (told.request, told.destination) == (number, 1)
    assert not [event for event in desk.events if event.token_ids]
