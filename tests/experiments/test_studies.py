"""Studies in shared storage: what one process proposes, whoever asks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifelong.experiments.studies import (
    ENDED,
    GIVEN_UP,
    StorageError,
    draw,
    open_study,
    propose,
    tell,
    trials_of,
)
from lifelong.learners.registry import Range

SPACE = {"mu": Range(0.001, 1.0), "strength": Range(0.1, 100.0)}
DEFAULTS = {"mu": 0.01, "strength": 1.0}
VALUES = st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=13)


def _open(storage=""):
    return open_study("study", SPACE, [DEFAULTS], storage)


def _next(study, value):
    trial = study.ask()
    proposed = draw(trial, SPACE)
    study.tell(trial, value, state=ENDED[value is None])
    return proposed


@settings(max_examples=15)
@given(values=VALUES, reopened=st.sets(st.integers(0, 12)))
def test_one_worker_proposes_what_a_process_does_however_often_it_is_started(
    tmp_path_factory, values, reopened
):
    storage = str(tmp_path_factory.mktemp("study") / "journal")
    alone, shared = _open(), _open(storage)
    for number, value in enumerate(values):
        if number in reopened:
            shared = _open(storage)
        assert _next(shared, value) == _next(alone, value)
    assert trials_of(shared)[0].params == DEFAULTS


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_workers_that_ask_at_the_same_time_propose_different_settings(tmp_path, kind):
    storage = str(tmp_path / "journal") if kind == "journal" else f"sqlite:///{tmp_path}/study.db"
    workers = [_open(storage) for _ in range(3)]
    asked = [(worker, worker.ask()) for _ in range(2) for worker in workers]
    proposed = [draw(trial, SPACE) for _, trial in asked]
    assert len({tuple(each.values()) for each in proposed}) == 6
    for worker, trial in reversed(asked):
        worker.tell(trial, 0.5)
    assert {t.state for t in trials_of(workers[0])} == {ENDED[0]}
    assert tuple(_next(workers[1], 0.1).values()) not in {tuple(p.values()) for p in proposed}


@pytest.fixture(params=["journal", "sqlite"])
def two(tmp_path, request):
    """The same study, opened by two processes."""
    storage = {"journal": f"{tmp_path}/journal", "sqlite": f"sqlite:///{tmp_path}/study.db"}
    return _open(storage[request.param]), _open(storage[request.param])


def test_of_two_that_tell_a_trial_at_once_the_first_counts(two, monkeypatch):
    one, other = two
    number, written = propose(one, SPACE), one._storage.set_trial_state_values

    def after_the_other(*given, **more):
        monkeypatch.undo()
        tell(other, number, 0.5, state=ENDED[False])
        return written(*given, **more)

    monkeypatch.setattr(one._storage, "set_trial_state_values", after_the_other)
    tell(one, number, state=GIVEN_UP)
    assert [(trial.state, trial.value) for trial in trials_of(one)] == [(ENDED[False], 0.5)]


def test_a_trial_that_another_gave_up_while_it_was_drawn_is_none(two, monkeypatch):
    one, other = two
    trial = one.ask()
    tell(other, trial.number, state=GIVEN_UP)
    monkeypatch.setattr(one, "ask", lambda: trial)
    assert propose(one, SPACE) is None
    assert trials_of(one) == []


def test_storage_that_cannot_be_used_is_named():
    with pytest.raises(StorageError, match=r"nothing://x cannot be used: .+sqlite:///study.db"):
        _open("nothing://x")


@pytest.mark.parametrize("left", [1, 20])
def test_a_write_that_was_stopped_in_its_midst_costs_only_itself(tmp_path, left):
    """As on a full disk: the last line of the journal has no end."""
    journal = tmp_path / "journal"
    alone, shared = _open(), _open(str(journal))
    for value in (0.5, 0.7):
        assert _next(shared, value) == _next(alone, value)
    whole = journal.read_bytes()
    going_on = _open(str(journal))
    shared.ask()  # what is lost of this
    journal.write_bytes(whole + journal.read_bytes()[len(whole) :][:left])
    assert len(trials_of(_open(str(journal)))) == 2
    for worker in (going_on, _open(str(journal))):
        assert _next(worker, 0.6) == _next(alone, 0.6)
    assert len(trials_of(_open(str(journal)))) == 4
