"""Two and three processes learn what one does: the same structure, and losses equal to rounding."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import member
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as runs
from hypothesis import strategies as st
from safetensors.torch import load_file

from builders import random, same
from lifelong.experiments.perform import Job, perform
from lifelong.experiments.stored import from_json
from lifelong.learners.checks import require_divisible
from lifelong.learners.den import DEN
from lifelong.networks.layout import NetworkError
from lifelong.tasks.examples import DatasetExamples, TensorExamples, part_of, whole_of
from lifelong.tasks.kinds import TaskError
from lifelong.tasks.shards import Shard
from lifelong.tasks.task import Task
from lifelong.training import head_solvers
from lifelong.training.budget import SettingError
from lifelong.training.ranks import ALONE, Ranks

TWO = ("units", "auto", "dataset", "mapped", "DNN-EWC", "ER", "L2-Selective")
THREE = ("units", "weights", "finetune", "LwF", "GPM", "HAT")
PROGRAM = member.__file__


def start(count, place, *what):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, PROGRAM, str(place), *what],
            env={**os.environ, **{name: str(v) for name, v in common.items()}, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def ended(processes):
    """What each said, and its exit code."""
    said = [process.communicate(timeout=120)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Directories of what two and three processes learned; three go on where one of two died."""
    two, three = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("three")
    first = member.tasks()[0]
    np.save(two / "train.npy", first.train.x.numpy())
    np.save(two / "valid.npy", first.valid.x.numpy())
    began = start(2, two, *TWO, "disagreeing", "dying")
    (code, said), (killed, _) = ended(began)
    assert killed == -signal.SIGKILL
    assert code not in (0, -signal.SIGKILL), said
    (two / "checkpoint").rename(three / "checkpoint")
    for code, said in ended(start(3, three, "resumed", *THREE)):
        assert code == 0, said
    return {2: two, 3: three}


CASES = [(2, name) for name in TWO] + [(3, name) for name in THREE]


@pytest.fixture
def exact_heads(monkeypatch):
    monkeypatch.setattr(head_solvers, "TOLERANCE", member.EXACT)


@pytest.mark.usefixtures("exact_heads")
@pytest.mark.parametrize(("count", "name"), CASES)
def test_processes_find_what_one_finds(learned, count, name):
    found = [load_file(learned[count] / f"{name}-{rank}.safetensors") for rank in range(count)]
    assert all(same(found[0], other) for other in found[1:])  # to the bit
    alone = member.mapped(learned[2], None) if name == "mapped" else member.SCENARIOS[name](None)
    expected = member.state(alone)
    assert found[0].keys() == expected.keys()
    assert torch.equal(found[0]["groups"], expected["groups"])  # selected, added, split, dropped
    assert torch.equal(found[0]["steps"], expected["steps"])
    for part, tensor in expected.items():
        torch.testing.assert_close(found[0][part], tensor, rtol=1e-3, atol=1e-3, msg=part)
    torch.testing.assert_close(found[0]["losses"], expected["losses"], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("exact_heads")
def test_after_the_death_of_one_of_two_three_go_on(learned):
    """From the checkpoint of the first process: not from the start, and to the same end."""
    stage, _, step = (learned[3] / "looks").read_text().rpartition(": ")
    assert int(step) > 0, stage
    found = [load_file(learned[3] / f"resumed-{rank}.safetensors") for rank in range(3)]
    assert all(same(found[0], other) for other in found[1:])
    learner = member.long_den(None)
    expected = member.state(member.learn_all(learner, member.tasks()[:2]))
    assert torch.equal(found[0]["groups"], expected["groups"])
    torch.testing.assert_close(found[0]["losses"], expected["losses"], rtol=1e-3, atol=1e-4)
    loaded = DEN.load(learned[3] / "model")  # written once, by the first process
    kept = {n: t for n, t in member.state(loaded).items() if n.startswith("tensor/")}
    assert same(kept, {name: found[0][name] for name in kept})


@given(
    rows=st.integers(1, 40),
    count=st.integers(1, 5),
    size=st.integers(1, 50),
    seed=st.none() | st.integers(0, 9),
)
@runs(max_examples=60)
def test_parts_make_up_the_batches_of_one_process(rows, count, size, seed):
    held = TensorExamples(torch.arange(rows).float()[:, None], torch.arange(rows))
    pairs = DatasetExamples(list(zip(held.x, held.y, strict=True)), "classes", rows)

    def batches(examples):
        generator = None if seed is None else random(seed)
        return [y for _, y in examples.batches(size, generator)]

    for whole in (held, pairs):
        parts = [part_of(whole, rank, count) for rank in range(count)]
        assert all(len(part) == rows and part.shape == (1,) for part in parts)
        assert all(whole_of(part) is whole or len(whole_of(part)) == rows for part in parts)
        of_ranks = [batches(part) for part in parts]
        if seed is None:
            together = torch.cat([y for each in of_ranks for y in each])
            assert together.sort().values.tolist() == list(range(rows))
            continue
        for number, batch in enumerate(batches(held)):
            mine = torch.cat([each[number] for each in of_ranks])
            assert sorted(mine.tolist()) == sorted(batch.tolist())


def test_rows_of_a_dataset_come_in_the_order_of_rows_in_memory():
    held = TensorExamples(torch.arange(30).float()[:, None], torch.arange(30))
    pairs = DatasetExamples(list(zip(held.x, held.y, strict=True)), "classes", 30)
    generators = [random(4), random(4)]
    for _ in range(2):  # passes
        orders = [
            torch.cat([y for _, y in rows.batches(7, generator)])
            for rows, generator in zip((held, pairs), generators, strict=True)
        ]
        assert torch.equal(*orders)


def test_a_shard_knows_how_many_of_its_rows_are_in_each_batch():
    shard = Shard(1, 3, range(10))
    numbers, by_batch = shard.drawn(4, None)
    assert numbers.tolist() == [1, 4, 7]
    assert by_batch == [1, 2, 0]


class TestRefusals:
    def test_without_other_processes(self, monkeypatch):
        monkeypatch.delenv("RANK", raising=False)
        with pytest.raises(SettingError, match="torchrun"):
            member.den("torch.distributed")

    def test_of_another_word(self):
        with pytest.raises(SettingError, match=r"'torch.distributed' or None, not 'horovod'"):
            member.den("horovod")

    def test_of_running_statistics(self):
        network = SimpleNamespace(layout=SimpleNamespace(buffers=("norm.running_mean",)))
        require_divisible(network, ALONE)
        with pytest.raises(NetworkError, match=r"running statistics, but this one has norm"):
            require_divisible(network, Ranks(0, 2))

    def test_of_fewer_rows_than_processes(self, monkeypatch):
        monkeypatch.setattr(Ranks, "require_equal", lambda *_: None)
        monkeypatch.setattr("lifelong.learners.base.ranks_for", lambda *_: Ranks(0, 3))
        learner = member.den("torch.distributed")
        pair = (torch.eye(2, 6), torch.tensor([0, 1]))
        with pytest.raises(TaskError, match="2 rows for 3 processes"):
            learner.learn(Task("few", pair, pair))
        assert not learner.tasks

    def test_of_batches_of_another_size(self):
        class Odd:
            shape = (1,)

            def __len__(self):
                return 10

            def batches(self, size, generator=None):
                del size, generator
                yield torch.zeros(3, 1), torch.zeros(3)

        with pytest.raises(TaskError, match="gave 3 rows with 10 left"):
            list(part_of(Odd(), 0, 2).batches(4))


def test_one_process_pays_nothing():
    """Its sums are the tensors themselves, and its generator is the one given."""
    tensor, generator = torch.ones(3), random(0)
    assert ALONE.summed(tensor) is tensor
    assert ALONE.from_first(tensor) is tensor
    assert ALONE.gathered(tensor) is tensor
    assert ALONE.own(generator, 5) is generator
    ALONE.require_equal("nothing", "asked")


def test_random_numbers_of_processes_differ_and_repeat():
    generator = random(0)
    drawn = {
        (rank, number): float(torch.rand((), generator=Ranks(rank, 2).own(generator, number)))
        for rank in range(2)
        for number in range(3)
    }
    assert len(set(drawn.values())) == 6
    again = float(torch.rand((), generator=Ranks(1, 2).own(generator, 2)))
    assert again == drawn[1, 2]


def test_torchrun_makes_the_runs_of_a_recipe(tmp_path):
    """Each run is stored once, with the scores of one process."""
    program = str(Path(PROGRAM).with_name("tiny_command.py"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = ["run", "tiny", "--out", str(tmp_path / "two"), "--json"]
    done = subprocess.run(
        [*launch, "--standalone", program, *command],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(json.loads(done.stdout)["made"]) == 2
    stored = sorted((tmp_path / "two" / "runs").rglob("*.json"))
    assert len(stored) == 2
    for file in stored:
        found = from_json(file.read_bytes())
        job = Job(found.experiment.configuration, tmp_path / "one")
        alone = perform(job).run.summary
        assert found.run.summary.auroc == pytest.approx(alone.auroc, abs=1e-3)
        assert found.run.summary.capacity == alone.capacity
