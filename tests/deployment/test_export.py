"""What was learned, as files for other runtimes: they answer as the learner does."""

import json
import sys
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from torch import nn

from builders import ARCHITECTURES, BUDGET, inputs_for, quick, small_mlp, stream_for, task_for
from lifelong import DEN, Task, mlp
from lifelong.deployment import export as exporting
from lifelong.deployment.export import ENDINGS, export, export_all, file_name
from lifelong.deployment.facts import ExportError
from lifelong.deployment.modules import task_module
from lifelong.evaluation.measure import LearnsTogether
from lifelong.extras import MissingExtraError
from lifelong.learners.registry import METHODS
from lifelong.networks.layout import Layout
from lifelong.tasks.kinds import TaskError
from zoo import ZOO, traced

KINDS = ("one output", "subtasks", "classes")


def learned(method="DEN", architecture=None, kinds=KINDS):
    architecture = architecture or small_mlp()
    learner = METHODS[method].make(architecture, budget=BUDGET)
    if method == "DEN":
        learner = DEN(architecture, quick())
    for task in stream_for(architecture, *kinds):
        learner.learn(task)
    return learner


def regression():
    x = inputs_for(small_mlp(), 40)
    y = x[:, :2] * 3 + 1
    learner = DEN(small_mlp(), quick())
    learner.learn(Task("numbers", (x, y), (x, y), kind="regression"))
    return learner


def session(file):
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("method", ["DEN", "DNN-STL", "DNN-Progressive", "DEN-No-Stamp"])
@pytest.mark.parametrize("network", ARCHITECTURES)
def test_onnx_answers_as_the_learner_does(method, network, tmp_path):
    architecture = ARCHITECTURES[network]()
    learner = learned(method, architecture)
    for task in learner.tasks:
        made = export(learner, tmp_path / "x.onnx", task=task)
        assert made.difference <= 1e-5
        assert made.bytes == made.file.stat().st_size
        ours = session(made.file)
        for rows in (1, 2, 33):
            x = inputs_for(architecture, rows, seed=rows)
            probabilities, labels = ours.run(None, {"inputs": x.numpy()})
            expected = learner.predict_proba(x, task=task).numpy()
            np.testing.assert_allclose(probabilities, expected, atol=1e-5)
            np.testing.assert_array_equal(labels, learner.predict(x, task=task))


@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize("name", ["mobile", "text"])
def test_a_traced_module_is_exported_for_any_number_of_rows(name, format, tmp_path):
    learner = DEN(traced(name), quick())
    x = ZOO[name].inputs(12).float()
    y = torch.arange(12) % 2
    learner.learn(Task("task 1", (x, y), (x, y)))
    made = export(learner, tmp_path / "x", task="task 1", format=format)
    assert made.difference <= 1e-5
    for rows in (1, 2, 9):
        expected = learner.predict_proba(x[:rows], task="task 1")
        if format == "onnx":
            found = session(made.file).run(None, {"inputs": x[:rows].numpy()})[0]
            torch.testing.assert_close(torch.tensor(found), expected)
        if format == "torch":
            torch.testing.assert_close(torch.export.load(made.file).module()(x[:rows]), expected)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_exported(method, tmp_path):
    learner = METHODS[method].make(small_mlp(), budget=BUDGET)
    if isinstance(learner, LearnsTogether):
        learner.learn_together(stream_for(small_mlp(), "one output", "one output"))
    else:
        for task in stream_for(small_mlp(), "one output", "one output"):
            learner.learn(task)
    for task in learner.tasks:
        assert export(learner, tmp_path / "x.onnx", task=task).difference <= 1e-5
        made = export(learner, tmp_path / "x.safetensors", task=task, format="state-dict")
        assert made.difference <= 1e-5


@pytest.mark.parametrize("method", ["DEN", "DEN-auto", "DNN-EWC"])
def test_methods_that_share_are_exported_in_one_file(method, tmp_path):
    learner = METHODS[method].make(small_mlp(), budget=BUDGET)
    for task in stream_for(small_mlp(), "one output", "one output"):
        learner.learn(task)
    assert export_all(learner, tmp_path / "all.onnx").difference <= 1e-5


def test_an_onnx_file_says_what_it_is(tmp_path):
    learner = learned()
    export(learner, tmp_path / "x.onnx", task="task 3")
    model = onnx.load(tmp_path / "x.onnx")
    facts = {each.key: each.value for each in model.metadata_props}
    assert (facts["task"], facts["kind"], facts["method"]) == ("task 3", "classes", "DEN")
    assert json.loads(facts["classes"]) == [0, 1, 2]
    assert json.loads(facts["tasks"]) == ["task 1", "task 2", "task 3"]
    assert json.loads(facts["versions"]).keys() == {"lifelong", "torch"}
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in shape] == ["rows", 6]
    sizes = {one.name: tuple(one.dims) for one in model.graph.initializer}
    _, network = learner.predictor("task 3")
    assert {name: tuple(t.shape) for name, t in network.tensors.items()}.items() <= sizes.items()


@pytest.mark.parametrize("format", ENDINGS)
def test_a_regression_is_exported_as_its_numbers(format, tmp_path):
    learner = regression()
    made = export(learner, tmp_path / "x", task="numbers", format=format)
    assert made.difference <= 1e-5
    x = inputs_for(small_mlp(), 5, seed=1)
    expected = learner.predict(x, task="numbers")
    if format == "onnx":
        (found,) = session(made.file).run(["predictions"], {"inputs": x.numpy()})
        torch.testing.assert_close(torch.tensor(found), expected)
    if format == "torch":
        found = torch.export.load(made.file).module()(x)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("method", ["DEN", "DNN-Progressive"])
def test_a_torch_program_answers_as_the_learner_does(method, tmp_path):
    learner = learned(method, kinds=("one output", "classes"))
    made = export(learner, tmp_path / "x.pt2", task="task 2", format="torch")
    extra = {"task.json": ""}
    program = torch.export.load(made.file, extra_files=extra).module()
    assert json.loads(extra["task.json"])["task"] == "task 2"
    for rows in (1, 9):
        x = inputs_for(small_mlp(), rows, seed=rows)
        torch.testing.assert_close(
            program(x), learner.predict_proba(x, task="task 2"), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("network", ARCHITECTURES)
def test_a_chain_is_an_nn_sequential_of_its_own_tensors(network, tmp_path):
    architecture = ARCHITECTURES[network]()
    learner = learned(architecture=architecture)
    made = export(learner, tmp_path / "x.safetensors", task="task 2", format="state-dict")
    module = task_module(learner, "task 2")
    assert type(module) is nn.Sequential
    x = inputs_for(architecture, 4)
    with torch.no_grad():
        before = module(x)
        torch.testing.assert_close(before, learner.decision_function(x, task="task 2"))
        for parameter in module.parameters():
            parameter.zero_()
    torch.testing.assert_close(before, learner.decision_function(x, task="task 2"))
    with safe_open(made.file, "pt") as tensors:
        assert tensors.metadata()["task"] == "task 2"
        assert "Sequential(" in tensors.metadata()["module"]
        module.load_state_dict({name: tensors.get_tensor(name) for name in tensors.keys()})  # noqa: SIM118
    with torch.no_grad():
        assert torch.equal(module(x), before)


def test_a_progressive_column_is_a_module_too():
    learner = learned("DNN-Progressive")
    module = task_module(learner, "task 2")
    assert "1.hidden1.weight" in module.state_dict()
    x = inputs_for(small_mlp(), 4)
    torch.testing.assert_close(module(x), learner.decision_function(x, task="task 2"))


@pytest.mark.parametrize("network", ARCHITECTURES)
def test_one_file_for_all_tasks_is_smaller_and_answers_the_same(network, tmp_path):
    architecture = ARCHITECTURES[network]()
    learner = learned(architecture=architecture)
    made = export_all(learner, tmp_path / "all.onnx")
    assert made.difference <= 1e-5
    ours = session(made.file)
    for number, task in enumerate(learner.tasks, 1):
        for rows in (1, 5):
            x = inputs_for(architecture, rows, seed=rows)
            (found,) = ours.run(None, {"inputs": x.numpy(), "task": np.array(number)})
            expected = learner.predict_proba(x, task=task).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-5)
    values = sum(np.prod(one.dims) for one in onnx.load(made.file).graph.initializer)
    apart = sum(
        tensor.numel()
        for task in learner.tasks
        for tensor in learner.predictor(task)[1].tensors.values()
    )
    assert values < apart
    with pytest.raises(Exception, match=r"out of data bounds|indices"):
        ours.run(None, {"inputs": x.numpy(), "task": np.array(4)})


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("DNN-STL", r"would hold .+ nothing is shared; export each task by its name"),
        ("DNN-Progressive", r"not of Columns; export each task by its name"),
    ],
)
def test_one_file_for_tasks_that_share_nothing_is_refused(method, why, tmp_path):
    with pytest.raises(ExportError, match=why):
        export_all(learned(method), tmp_path / "all.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_asked_for_wrongly_is_refused(tmp_path):
    learner = learned(kinds=("one output",))
    with pytest.raises(ExportError, match="no format 'onxx'; did you mean onnx"):
        export(learner, tmp_path / "x", task="task 1", format="onxx")
    with pytest.raises(TaskError, match="no task named 'task 9' was learned"):
        export(learner, tmp_path / "x", task="task 9")
    with pytest.raises(ExportError, match="no task was learned yet"):
        export_all(DEN(small_mlp()), tmp_path / "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_onnx_names_the_extra_that_it_lacks(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}, .+lifelong\[export\]"):
        export(learned(kinds=("one output",)), tmp_path / "x", task="task 1")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", ENDINGS)
def test_a_file_that_answers_otherwise_is_not_written(format, tmp_path, monkeypatch):
    learner = learned(kinds=("one output",))
    (tmp_path / "x").write_text("before")
    other = DEN(small_mlp(), quick(), seed=1)
    other.learn(task_for(small_mlp(), seed=7, name="task 1"))
    module = task_module(other, "task 1", answers=format == "torch")
    monkeypatch.setattr(exporting, "task_module", lambda *_, **__: module)
    _, wrong = other.predictor("task 1")
    made = exporting.task_graph
    monkeypatch.setattr(exporting, "task_graph", lambda known, _, facts: made(known, wrong, facts))
    with pytest.raises(ExportError, match=r"differs from the learner's answers by .+ not written"):
        export(learner, tmp_path / "x", task="task 1", format=format)
    assert (tmp_path / "x").read_text() == "before"


def test_names_of_files_are_plain():
    assert file_name("march", "onnx") == "march.onnx"
    assert file_name("../../etc/passwd", "torch") == "etc-passwd.pt2"
    assert file_name("\x1b[2J…/", "state-dict") == "2J.safetensors"
    assert file_name("///", "onnx") == "task.onnx"
    assert file_name(None, "onnx") == "all-tasks.onnx"


@dataclass(frozen=True)
class Tanh:
    """An architecture of layers that this library does not have."""

    layout: Layout

    @property
    def start(self):
        return {}

    def features(self, tensors, x, generator=None):
        del generator
        return torch.tanh(x @ tensors["hidden1.weight"].T + tensors["hidden1.bias"])

    def multiply_adds(self, tensors):
        return sum(t.numel() for t in tensors.values() if t.ndim == 2)


def test_layers_that_are_not_ours_are_exported_by_torch(tmp_path):

    learner = METHODS["DNN-STL"].make(Tanh(mlp(6, [5]).layout), budget=BUDGET)
    learner.learn(task_for(small_mlp(), "classes", name="t"))
    x = inputs_for(small_mlp(), 5)
    made = export(learner, tmp_path / "x.onnx", task="t")
    (found,) = session(made.file).run(["probabilities"], {"inputs": x.numpy()})
    np.testing.assert_allclose(found, learner.predict_proba(x, task="t"), atol=1e-5)
    assert {p.key: p.value for p in onnx.load(made.file).metadata_props}["task"] == "t"
