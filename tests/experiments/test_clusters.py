"""Runs on clusters: Ray with a node that dies, Slurm's jobs preempted. Short versions of both."""

import os
import signal
from dataclasses import replace

import pytest
from tiny import BUDGET, configuration, job, without_times

from lifelong.experiments.engines import RAY, SLURM, Doing, Done, EngineError, Resources, run_jobs
from lifelong.experiments.perform import perform
from lifelong.experiments.stored import RunPaths, find

pytestmark = pytest.mark.cluster
RUNS = ("DEN", "DNN-MTL")
SECONDS = replace(BUDGET, steps=1500, patience=200)  # so long that a run is seen while it is made
# Workers of Ray are at the end of the line otherwise (nice 15), and a lost node is found late.
FAST = {"worker_niceness": 0, "health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}


@pytest.fixture
def cluster():
    """A node that takes no runs, and one that takes them all, and may die."""
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": FAST}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def _pid(event):
    return int(event.where.rpartition(":")[2])


@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open
def test_a_node_of_ray_that_dies_costs_no_run(tmp_path, cluster):
    jobs = [job(tmp_path, name, tasks=3, budget=SECONDS) for name in RUNS]
    (doomed,) = cluster.worker_nodes
    places, written, ended = RunPaths(tmp_path), dict[str, int](), dict[str, object]()
    processes: set[int] = set()
    for event in run_jobs(jobs, RAY):
        for each in jobs:
            file = places.run(each.configuration)
            if file.exists():
                written.setdefault(str(file), file.stat().st_ino)
        if isinstance(event, Doing):
            if not processes:
                cluster.remove_node(doomed, allow_graceful=False)  # while it works
                cluster.add_node(num_cpus=1)
            processes.add(_pid(event))
        else:
            assert event.job.configuration.method not in ended
            ended[event.job.configuration.method] = event
    assert len(processes) > 1  # others went on
    assert {type(event) for event in ended.values()} == {Done}
    for name in RUNS:
        asked = configuration(name, tasks=3, budget=SECONDS)
        found = find(places, asked)
        assert found is not None
        alone = perform(job(tmp_path / "alone", name, tasks=3, budget=SECONDS))
        assert without_times(found.run) == without_times(alone.run)
        file = places.run(asked)
        assert written.get(str(file), file.stat().st_ino) == file.stat().st_ino  # written once


def test_a_cluster_of_ray_that_is_not_there_is_named(tmp_path):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with pytest.raises(EngineError, match=r"no Ray cluster at 'nowhere': .+ray start --head"):
        list(run_jobs([job(tmp_path, "DNN")], RAY, Resources(address="nowhere")))


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # submitit leaves processes to the system
def test_a_preempted_job_of_slurm_is_queued_again_and_goes_on(tmp_path):
    pytest.importorskip("submitit", reason="the extra 'slurm' is not installed")
    resources = Resources(jobs=1, address="local")
    asked = job(tmp_path, "DEN", tasks=4, budget=SECONDS)
    doing: list[Doing] = []
    ended = []
    for event in run_jobs([asked], SLURM, resources):
        if isinstance(event, Doing):
            if event.done >= 1 and len({_pid(each) for each in [*doing, event]}) == 1:
                os.kill(_pid(event), signal.SIGUSR2)  # what Slurm sends before it takes the node
            doing.append(event)
        else:
            ended.append(event)
    assert [type(event) for event in ended] == [Done]
    assert len({_pid(event) for event in doing}) == 2
    again = next(event for event in doing if _pid(event) != _pid(doing[0]))
    assert again.done >= 1  # from the checkpoint, not from the start
    found = find(RunPaths(tmp_path), asked.configuration)
    assert found is not None
    alone = perform(job(tmp_path / "alone", "DEN", tasks=4, budget=SECONDS))
    assert without_times(found.run) == without_times(alone.run)


def test_slurm_takes_few_addresses(tmp_path):
    pytest.importorskip("submitit", reason="the extra 'slurm' is not installed")
    with pytest.raises(EngineError, match="takes --address slurm, local, debug, not 'auto'"):
        list(run_jobs([job(tmp_path, "DNN")], SLURM, Resources(address="auto")))
