"""Runs at an address: found from everywhere, made once, and gone on with elsewhere."""

import os
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from test_runner import HERE
from tiny import configuration, job, without_times

from lifelong.experiments import claims
from lifelong.experiments import perform as performing
from lifelong.experiments.addresses import is_address
from lifelong.experiments.claims import RunLocked, Sign
from lifelong.experiments.collect import collect
from lifelong.experiments.engines import Skipped, outcome
from lifelong.experiments.perform import perform, sign_of
from lifelong.experiments.runner import run
from lifelong.experiments.shared import SharedStore
from lifelong.experiments.stored import RunPaths, StoredError, find

QUIET = Console(quiet=True)
DNN = configuration("DNN")


class Stopped(BaseException):
    """As when a process is told to end."""


@pytest.fixture(params=["file", "memory"])
def address(request, tmp_path):
    return f"file://{tmp_path}/store" if request.param == "file" else f"memory://{uuid4().hex}"


def _job(address, out, method, **given):
    return performing.replace(job(out, method, **given), store=address)


def _names(address):
    files, root = fsspec.url_to_fs(address)
    return sorted(name.removeprefix(root).strip("/") for name in files.find(root))


def test_an_address_is_told_from_a_directory():
    assert is_address("s3://bucket/study")
    assert is_address("file:///mnt/study")
    assert not is_address("results")
    assert not is_address("C:\\results")


def test_a_run_at_an_address_is_that_of_a_directory_and_is_found_from_everywhere(address, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    counts = run([_job(address, one, "DNN")], console=QUIET, engine=HERE)
    assert len(counts.made) == 1
    alone = perform(job(tmp_path / "alone", "DNN"))
    found = find(RunPaths(one), DNN)
    assert found is not None
    assert without_times(found.run) == without_times(alone.run)
    again = run([_job(address, other, "DNN")], console=QUIET, engine=HERE)
    assert (len(again.there), again.made) == (1, [])
    assert {name.split("/")[0] for name in _names(address)} == {"runs", "models"}


def test_finetuning_at_an_address_starts_from_the_stored_den(address, tmp_path, monkeypatch):
    perform(_job(address, tmp_path, "DEN"))
    monkeypatch.setattr(performing.DEN, "_learn", None)  # nothing is left to learn
    made = perform(_job(address, tmp_path, "DEN-Finetune"))
    monkeypatch.undo()
    alone = perform(job(tmp_path / "alone", "DEN-Finetune"))
    assert without_times(made.run) == without_times(alone.run)


def test_a_run_that_was_stopped_goes_on_elsewhere_from_its_checkpoint(address, tmp_path):
    def stop(_method, _what, done):
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        perform(_job(address, tmp_path, "DEN", tasks=4), stop)
    assert any("working/" in name for name in _names(address))
    known = []
    went_on = perform(
        _job(address, tmp_path / "elsewhere", "DEN", tasks=4),
        lambda _method, _what, done: known.append(done),
    )
    assert known[0] == 2
    whole = perform(job(tmp_path / "whole", "DEN", tasks=4))
    assert without_times(went_on.run) == without_times(whole.run)
    assert not any("working/" in name for name in _names(address))


def test_a_checkpoint_that_changes_while_it_is_copied_is_not_copied(tmp_path, address, monkeypatch):
    store, top = SharedStore(address), tmp_path / RunPaths(Path()).working(DNN)
    top.mkdir(parents=True)
    (top / "progress.json").write_text("model-1")
    (top / "model-1").write_text("one")
    plain = SharedStore._put_once

    def put_once(self, name, file, known):
        plain(self, name, file, known)
        (top / "progress.json").write_text("model-2")  # and the run goes on

    monkeypatch.setattr(SharedStore, "_put_once", put_once)
    store.put_working(DNN, tmp_path, {})
    assert not any(name.endswith("progress.json") for name in _names(address))
    monkeypatch.undo()
    store.put_working(DNN, tmp_path, {})
    assert any(name.endswith("progress.json") for name in _names(address))


def test_a_run_is_claimed_by_one(address, tmp_path):
    store = SharedStore(address)
    with store.claims(DNN).held(0.0) as claim:
        claim.tell("digit 1", 1)
        skipped = outcome(_job(address, tmp_path, "DNN"))
        sign = sign_of(_job(address, tmp_path, "DNN"))
    assert isinstance(skipped, Skipped)
    assert f"another process is making this run, at {Sign.here().where}" in skipped.why
    assert sign is not None
    assert (sign.what, sign.done) == ("digit 1", 1)
    with store.claims(DNN).held(0.0):
        pass  # it was given back


def test_who_was_silent_has_lost_its_claim_and_stores_nothing(address, tmp_path, monkeypatch):
    def silent(_method, _what, _done):
        monkeypatch.setattr(claims, "STALE", -1.0)
        if not taken:
            taken.append(SharedStore(address).claims(DNN).take())

    taken = []
    with pytest.raises(RunLocked, match="taken this run over"):
        perform(_job(address, tmp_path, "DNN"), silent)
    assert taken[0] is not None
    assert taken[0].held
    assert not any(name.startswith("runs/") for name in _names(address))


def test_the_claim_of_a_dead_process_is_free_at_once(address, monkeypatch):
    with monkeypatch.context() as then:
        then.setattr(os, "getpid", lambda: 2**22 + 1)  # above what Linux gives
        assert SharedStore(address).claims(DNN).take() is not None
    with SharedStore(address).claims(DNN).held(0.0) as claim:
        assert claim.held


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "age"]), st.integers(0, 2))))
def test_at_most_one_holds_a_claim(steps):
    store, holding = SharedStore(f"memory://{uuid4().hex}"), {}
    for what, who in steps:
        if what == "take" and who not in holding:
            claim = store.claims(DNN).take()
            if claim is not None:
                holding[who] = claim
        elif what == "give" and who in holding:
            holding.pop(who).give_back()
        elif what == "age":
            before, claims.STALE = claims.STALE, -1.0
            taken = store.claims(DNN).take()
            claims.STALE = before
            if taken is not None:
                holding = {number: each for number, each in holding.items() if number != who}
                holding[who] = taken
        assert sum(claim.held for claim in holding.values()) <= 1


def test_a_copy_has_the_runs_of_the_address_and_no_others(address, tmp_path):
    out = tmp_path / "copy"
    run([_job(address, out, "DNN"), _job(address, out, "DNN-MTL")], console=QUIET, engine=HERE)
    gone = RunPaths(Path()).run(DNN)
    files, root = fsspec.url_to_fs(address)
    files.rm(f"{root}/{gone.as_posix()}")
    SharedStore(address).refresh(out)
    assert not (out / gone).exists()
    assert find(RunPaths(out), configuration("DNN-MTL")) is not None


def test_a_damaged_run_at_an_address_is_left_aside_and_made_again(address, tmp_path):
    run([_job(address, tmp_path / "one", "DNN")], console=QUIET, engine=HERE)
    files, root = fsspec.url_to_fs(address)
    name = f"{root}/{RunPaths(Path()).run(DNN).as_posix()}"
    files.pipe_file(name, files.cat_file(name)[:-30])
    counts = run([_job(address, tmp_path / "two", "DNN")], console=QUIET, engine=HERE)
    assert (len(counts.damaged), len(counts.made)) == (1, 1)
    assert any(each.endswith(".damaged") for each in _names(address))


def test_why_a_run_failed_is_at_the_address_until_it_succeeds(address, tmp_path):
    fails = _job(address, tmp_path, "DNN", mu=0.2)
    fails.configuration.settings["mu"] = -1.0
    counts = run([fails], console=QUIET, engine=HERE)
    assert len(counts.failed) == 1
    assert any(name.startswith("failed/") for name in _names(address))


def test_a_store_that_cannot_be_reached_is_named():
    with pytest.raises(StoredError, match=r"nowhere://x: no such store .+ or give a directory"):
        SharedStore("nowhere://x")


def test_what_is_at_an_address_is_shown_from_a_copy(address, tmp_path):
    from tiny import tiny_recipe

    out = tmp_path / "copy"
    run([_job(address, tmp_path / "made", "DNN")], console=QUIET, engine=HERE)
    SharedStore(address).refresh(out)
    assert len(collect(tiny_recipe("DNN"), out, seeds=(0,)).measured) == 1
