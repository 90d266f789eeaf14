"""How long runs will take, and what an interrupted one goes on from."""

import io
import shutil

import msgspec
import pytest
from tiny import job

from lifelong.evaluation.measure import no_progress
from lifelong.experiments.durations import Durations, in_words
from lifelong.experiments.engines import Resources
from lifelong.experiments.pack import pack
from lifelong.experiments.perform import perform, tasks_done
from lifelong.experiments.runner import run
from lifelong.printing import Terminal


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (41, "41 s"),
        (89, "89 s"),
        (90, "1.5 min"),
        (840, "14 min"),
        (5400, "1.5 h"),
        (90_000, "25 h"),
    ],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words


def test_runs_of_other_seeds_and_settings_tell_how_long_it_takes(tmp_path):
    known, other = job(tmp_path, "DNN"), job(tmp_path, "DNN-MTL")
    seconds = perform(known).run.summary.seconds
    again = msgspec.structs.replace(known.configuration, seed=9)
    for _ in range(2):  # from its own file, and packed
        expected = Durations(tmp_path).expected([again, again, other.configuration])
        assert expected.seconds == pytest.approx(2 * seconds, rel=1e-3)
        assert (expected.known, expected.runs) == (2, 3)
        assert str(expected).endswith("for 2 of 3 runs")
        pack(tmp_path)
    wider = msgspec.structs.replace(again, tasks=again.tasks + 1)
    assert str(Durations(tmp_path).expected([wider])) == "unknown"


def test_damaged_runs_tell_nothing(tmp_path):
    (tmp_path / "runs" / "digits").mkdir(parents=True)
    (tmp_path / "runs" / "digits" / "x.json").write_text("{")
    (tmp_path / "runs" / "digits.jsonl.xz").write_bytes(b"not packed")
    assert Durations(tmp_path).expected([job(tmp_path, "DNN").configuration]).known == 0


def test_a_run_tells_how_long_it_will_take_and_what_it_goes_on_from(tmp_path):
    class Killed(Exception):
        pass

    def kill(_method, _doing, done):
        if done == 1:
            raise Killed

    begun = job(tmp_path, "DNN", tasks=2)
    assert tasks_done(begun) == 0
    with pytest.raises(Killed):
        perform(begun, kill)
    assert tasks_done(begun) == 1
    said = io.StringIO()
    run([begun], resources=Resources(jobs=1), console=Terminal(file=said))
    told = said.getvalue()
    assert f"{begun}: goes on after 1 of 2 tasks" in told
    assert "1 run to make; none like them is stored" in told
    shutil.rmtree(tmp_path / "working", ignore_errors=True)
    later = job(tmp_path, "DNN", tasks=2, mu=0.3)
    perform(begun, no_progress)
    said = io.StringIO()
    run([begun, later], resources=Resources(jobs=1), console=Terminal(file=said))
    assert "1 of 2 runs are there already" in said.getvalue()
    assert "1 run to make, 1 at a time: about 1 s, by what stored ones took." in said.getvalue()
