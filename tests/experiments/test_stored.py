"""What a key stands for, and that a file is read only if it is what it seems."""

import msgspec
import pytest
from tiny import configuration, job

from lifelong.evaluation.runs import read_runs
from lifelong.experiments import stored
from lifelong.experiments.configuration import Configuration, slug
from lifelong.experiments.perform import perform


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    perform(job(out, "DNN-STL"))
    return out, configuration("DNN-STL")


def _file(made):
    return stored.RunPaths(made[0]).run(made[1])


def test_the_same_configuration_has_the_same_key_and_any_change_another():
    plain = configuration("DNN-L2")
    assert configuration("DNN-L2").key == plain.key
    others = [
        configuration("DNN-L2", seed=1),
        configuration("DNN-L2", tasks=3),
        configuration("DNN-L2", scale=2.0),
        configuration("DNN-L2", strength=0.5),
        configuration("DNN"),
        msgspec.structs.replace(plain, rows="valid"),
    ]
    assert len({each.key for each in [plain, *others]}) == 1 + len(others)


def test_a_configuration_comes_back_from_json_as_it_was():
    plain = configuration("DEN", k=(1, 2))
    text = msgspec.json.encode(plain)
    assert msgspec.json.decode(text, type=Configuration) == plain


def test_names_of_files_are_harmless():
    assert slug("features:../a b/é.npz") == "features-a-b-npz"


def test_a_stored_run_is_read_back_and_by_whatever_reads_runs(
    made,
):
    found = stored.find(stored.RunPaths(made[0]), made[1])
    assert found is not None
    assert found.experiment.configuration == made[1]
    assert read_runs([_file(made)]) == (found.run,)


def test_a_changed_number_is_noticed(made, tmp_path):
    text = _file(made).read_text()
    capacity = msgspec.json.decode(text)["summary"]["parameters"]
    damaged = tmp_path / "run.json"
    damaged.write_text(text.replace(f'"parameters":{capacity}', f'"parameters":{capacity + 1}', 1))
    with pytest.raises(stored.StoredError, match=r"run\.json: its checksum differs"):
        stored.read(damaged)


@pytest.mark.parametrize("kept", [0, 1, 100, -2])
def test_half_a_file_is_refused_and_named(made, tmp_path, kept):
    damaged = tmp_path / "half.json"
    damaged.write_bytes(_file(made).read_bytes()[:kept])
    with pytest.raises(stored.StoredError, match=r"half\.json: not a stored run"):
        stored.read(damaged)


def test_a_run_of_another_configuration_is_refused_with_the_difference(made, tmp_path):
    places, asked = stored.RunPaths(tmp_path), configuration("DNN-STL", mu=0.25)
    file = places.run(asked)
    file.parent.mkdir(parents=True)
    file.write_bytes(_file(made).read_bytes())
    with pytest.raises(stored.StoredError, match=r"settings\.mu is 0\.1 and not 0\.25"):
        stored.find(places, asked)


def test_what_is_damaged_keeps_its_content_under_another_name(tmp_path):
    for content in ("first", "second"):
        file = tmp_path / "run.json"
        file.write_text(content)
        aside = stored.set_aside(file)
        assert aside.read_text() == content
        assert not file.exists()
    assert len(list(tmp_path.iterdir())) == 2


def test_scores_are_rounded_and_small(made):
    members = msgspec.json.decode(_file(made).read_bytes())
    for row in members["matrix"]["scores"]["auroc"]:
        assert all(score is None or score == round(score, 6) for score in row)
    assert _file(made).stat().st_size < 5000
