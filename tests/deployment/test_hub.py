"""Models with cards, in directories and on a Hub that is made up: no test needs a network."""

import inspect
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi, ModelCard, hub_mixin, snapshot_download

from builders import BUDGET, answers, inputs_for, quick, small_mlp, stream_for, task_for
from lifelong import DEN, LifelongClassifier
from lifelong.deployment import hub
from lifelong.deployment.card import card_text
from lifelong.deployment.hub import from_pretrained, push_to_hub, save_pretrained
from lifelong.learners.registry import METHODS
from lifelong.persistence.manifest import ModelFileError

X = inputs_for(small_mlp(), 4)


@pytest.fixture(scope="module")
def learner():
    made = DEN(small_mlp(), quick())
    for task in stream_for(small_mlp(), "one output", "classes"):
        made.learn(task)
    return made


def same_answers(left, right):
    ours, theirs = answers(left, X), answers(right, X)
    return ours.keys() == theirs.keys() and all(ours[n].equal(theirs[n]) for n in ours)


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    """A directory for each repository; calls must fit the real functions."""
    repositories = tmp_path / "hub"

    class Api:
        def __init__(self, token=None):
            self.token = token

        def create_repo(self, **given):
            inspect.signature(HfApi.create_repo).bind(self, **given)
            (repositories / given["repo_id"]).mkdir(parents=True, exist_ok=True)
            return SimpleNamespace(repo_id=given["repo_id"])

        def upload_folder(self, **given):
            inspect.signature(HfApi.upload_folder).bind(self, **given)
            place = repositories / given["repo_id"]
            for pattern in given["delete_patterns"]:
                for old in place.glob(pattern):
                    old.unlink()
            ignored = shutil.ignore_patterns(*given["ignore_patterns"])
            shutil.copytree(given["folder_path"], place, dirs_exist_ok=True, ignore=ignored)
            return f"commit: {given['commit_message']}"

    def download(repo_id, **given):
        inspect.signature(snapshot_download).bind(repo_id, **given)
        cache = tmp_path / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        for pattern in given["allow_patterns"]:
            for file in (repositories / repo_id).glob(pattern):
                (cache / file.name).symlink_to(file)  # as the real cache is made
        return str(cache)

    monkeypatch.setattr(hub_mixin, "HfApi", Api)
    monkeypatch.setattr(hub, "snapshot_download", download)
    return repositories


def test_a_model_goes_to_the_hub_and_comes_back(learner, fake_hub):
    assert push_to_hub(learner, "me/model") == "commit: DEN, 2 tasks"
    files = {file.name for file in (fake_hub / "me/model").iterdir()}
    assert {"manifest.json", "README.md"} < files
    assert len(files) == 4
    assert same_answers(from_pretrained("me/model"), learner)


def test_a_model_that_has_grown_replaces_the_one_before(fake_hub):
    learner = DEN(small_mlp(), quick())
    for number, task in enumerate(stream_for(small_mlp(), "one output", "classes"), 1):
        learner.learn(task)
        push_to_hub(learner, "me/model")
        again = from_pretrained("me/model")
        assert len(again.tasks) == number
        assert same_answers(again, learner)
        assert len(list((fake_hub / "me/model").iterdir())) == 4
    again.learn(task_for(small_mlp(), seed=9, name="one more"))
    assert same_answers(from_pretrained("me/model"), learner)


def test_only_the_files_of_a_model_are_taken_from_the_hub(learner, fake_hub, tmp_path):
    push_to_hub(learner, "me/model")
    (fake_hub / "me/model/config.json").write_text('{"learner": "evil", "x": [')
    (fake_hub / "me/model/code.py").write_text("raise SystemExit")
    assert same_answers(from_pretrained("me/model"), learner)
    assert {file.suffix for file in (tmp_path / "cache").iterdir()} == {".json", ".safetensors"}
    assert not (tmp_path / "cache/config.json").exists()


def test_a_damaged_model_from_the_hub_is_refused(learner, fake_hub):
    push_to_hub(learner, "me/model")
    (tensors,) = (fake_hub / "me/model").glob("tensors-*")
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"!")
    with pytest.raises(ModelFileError, match="checksum differs"):
        from_pretrained("me/model")


@pytest.mark.parametrize("method", ["DEN", "DNN-STL"])
def test_a_directory_holds_a_model_with_its_card(method, tmp_path):
    learner = METHODS[method].make(small_mlp(), budget=BUDGET)
    task, later = stream_for(small_mlp(), "one output", "classes")
    learner.learn(task)
    place = tmp_path / "months"
    save_pretrained(learner, place, scores={"task 1": {"auroc": 0.9876}}, command="make model")
    assert same_answers(from_pretrained(place), learner)
    card = ModelCard.load(place / "README.md")
    assert card.data.library_name == "lifelong"
    assert "continual-learning" in card.data.tags
    assert "# months" in card.content
    assert "0.9876" in card.content
    assert "make model" in card.content
    learner.learn(later)
    save_pretrained(learner, place)
    assert "| 2 | task 2 | classes | 3 |" in (place / "README.md").read_text()
    assert "auroc" not in (place / "README.md").read_text()


def test_an_estimator_goes_to_the_hub_with_its_columns(fake_hub):
    rows = X.numpy().repeat(10, axis=0)
    labels = ["high" if row[0] > 0 else "low" for row in rows]
    estimator = LifelongClassifier(network=(8,), budget=BUDGET).fit(rows, labels, task="march")
    push_to_hub(estimator, "me/table")
    again = from_pretrained("me/table")
    assert isinstance(again, LifelongClassifier)
    assert again.predict(rows).tolist() == estimator.predict(rows).tolist()
    assert "march" in (fake_hub / "me/table/README.md").read_text()


def test_a_card_that_somebody_wrote_is_kept_and_so_is_another_model(learner, tmp_path):
    (tmp_path / "README.md").write_text("my own words")
    save_pretrained(learner, tmp_path)
    assert (tmp_path / "README.md").read_text() == "my own words"
    other = DEN(small_mlp(), quick(), seed=1)
    with pytest.raises(ModelFileError, match="neither loaded nor saved there"):
        save_pretrained(other, tmp_path)
    save_pretrained(other, tmp_path, overwrite=True)
    assert from_pretrained(tmp_path).seed == 1


def test_the_card_tells_tasks_growth_and_settings(learner):
    text = card_text(learner, name="me/model")
    assert f"{learner.capacity().parameters:,} parameters" in text
    assert f"{learner.relative_capacity():.2f} times its base network" in text
    for number, record in enumerate(learner.records, 1):
        assert f"| {number} | task {number} |" in text
        assert f"{record.loss:.4f}" in text
        assert f"{record.groups['hidden1'].units:,}" in text
    assert f"hidden1 {len(learner.network.born['hidden1'])} (base 10)" in text
    assert "from_pretrained('me/model')" in text
    assert "Settings(" in text
    assert "no task" not in text
    assert card_text(DEN(small_mlp()), name="new")


def test_names_in_a_card_are_no_markup():
    learner = DEN(small_mlp(), quick())
    learner.learn(task_for(small_mlp(), name="<script>|[x](http://e)\n```\n# head\x1b[2J"))
    text = card_text(learner, name="m")
    table = next(line for line in text.split("\n") if line.startswith("| 1 |"))
    assert "<script" not in table.replace("\\<", "")
    assert "\\|\\[x\\](http" in table
    assert "\x1b" not in text
    inside = text.split("## Use")[1].split("## Tasks")[0]
    assert inside.count("\n```") == 2


def test_a_saved_model_has_no_file_that_the_hub_does_not_know(learner, tmp_path):
    save_pretrained(learner, tmp_path)
    named = {file.name for file in tmp_path.iterdir()} - {".lock", "README.md"}
    found = {f.name for pattern in hub.MODEL_FILES for f in Path(tmp_path).glob(pattern)}
    assert named == found
