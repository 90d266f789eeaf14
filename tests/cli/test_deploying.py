"""`lifelong export`."""

import json

import onnxruntime
import pytest

from builders import quick, small_mlp, stream_for
from lifelong import DEN
from lifelong.cli.main import main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    learner = DEN(small_mlp(), quick())
    for task in stream_for(small_mlp(), "one output", "classes"):
        learner.learn(task)
    learner.save(path)
    return str(path)


def refused(capsys, *args):
    with pytest.raises(SystemExit) as end:
        main(list(args))
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "file"),
    [
        (["--task", "task 2"], "task-2.onnx"),
        (["--task", "task 1", "--format", "state-dict"], "task-1.safetensors"),
        (["--task", "task 1", "--format", "torch", "--out", "made/x"], "made/x"),
        (["--all"], "all-tasks.onnx"),
    ],
)
def test_export_writes_a_checked_file(model, given, file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["export", model, *given, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == file
    assert told["bytes"] == (tmp_path / file).stat().st_size
    assert told["difference"] <= 1e-5
    if file.endswith(".onnx"):
        assert onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).get_inputs()


def test_export_says_what_it_wrote(model, tmp_path, capsys):
    main(["export", model, "--task", "task 1", "--out", str(tmp_path / "x.onnx")])
    assert "x.onnx: " in capsys.readouterr().out


def test_export_refuses_in_a_line(model, tmp_path, capsys):
    code, said = refused(capsys, "export", model)
    assert code == 2
    assert "say which task with --task, or --all; the model knows 'task 1', 'task 2'" in said
    code, said = refused(capsys, "export", model, "--all", "--task", "task 1")
    assert code == 2
    assert "give it without --task" in said
    code, said = refused(capsys, "export", model, "--task", "nine")
    assert code == 1
    assert "no task named 'nine'" in said
    code, said = refused(capsys, "export", str(tmp_path))
    assert code == 1
    assert "not a saved model: it has no manifest.json" in said
    alone = DEN(small_mlp(), quick())
    alone.save(tmp_path / "new")
    code, said = refused(capsys, "export", str(tmp_path / "new"), "--all")
    assert code == 1
    assert "no task was learned yet" in said
