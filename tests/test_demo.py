"""A tiny run from end to end: what it stores, what the page shows, how the command fails."""

import re
from functools import partial
from html import unescape
from pathlib import Path

import msgspec
import pytest

from lifelong import cli, demo
from lifelong.data import load
from lifelong.report import forgetting_points, page
from lifelong.runs import Run, read_runs
from lifelong.solve import Budget
from lifelong.streams import Stream
from lifelong.tasks import Task

NAMES = ("<script>", "$x_1$ & Co", "a task with a rather long name")
WIDTHS = (16, 8)
BUDGET = Budget(steps=20, check_every=10)


def _renamed(stream: Stream, names: tuple[str, ...]) -> Stream:
    def make(old: str, new: str) -> Task:
        task = stream[old]
        task.name = new
        return task

    pairs = zip(stream.names, names, strict=False)
    return Stream({new: lambda o=old, n=new: make(o, n) for old, new in pairs}, source="<data>")


def _tiny(names: tuple[str, ...], seed: int = 0) -> tuple[Run, ...]:
    stream = _renamed(load("digits"), names)
    return demo.run(stream, seed=seed, widths=WIDTHS, budget=BUDGET)


@pytest.fixture(scope="module")
def runs() -> tuple[Run, ...]:
    return _tiny(NAMES)


def _of(runs: tuple[Run, ...], method: str) -> Run:
    return next(run for run in runs if run.method == method)


@pytest.fixture(scope="module")
def html(runs: tuple[Run, ...]) -> str:
    return page(runs)


def _cells(html: str, section: str) -> list[list[str]]:
    """Rows of cells of the first table after the heading of this id."""
    table = re.search(r"<tbody>(.*?)</tbody>", html[html.index(f'<h2 id="{section}"') :], re.DOTALL)
    assert table is not None
    return [
        [
            unescape(re.sub(r"<small>.*?</small>", "", cell))
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)
    ]


def test_methods_on_the_page_are_the_stored_ones(runs: tuple[Run, ...], html: str) -> None:
    shown = _cells(html, "methods")
    assert [row[0] for row in shown] == ["DEN", "DNN-STL", "DNN-MTL"]
    for row, method in zip(shown, runs, strict=True):
        s = method.summary
        assert row[1:] == [
            f"{s.auroc:.4f}",
            forgetting_points(s.forgetting),
            f"{s.capacity:.2f}",
            f"{s.parameters:,}",
            f"{s.nonzero:,}",
            f"{s.seconds:.1f}",
        ]


def test_the_matrix_on_the_page_is_the_stored_one(runs: tuple[Run, ...], html: str) -> None:
    results = _of(runs, "DEN").results
    assert results is not None
    r = results.matrix()
    assert [row[0] for row in _cells(html, "scores")] == list(NAMES)
    for i, row in enumerate(_cells(html, "scores")):
        assert row[1 : i + 2] == [f"{score:.4f}" for score in r[i, : i + 1]]
        assert row[i + 2 :] == [""] * (len(NAMES) - i - 1)
    assert html.count("R[i, j] is the score of task j after learning task i") >= 2


def test_units_on_the_page_are_the_stored_ones(runs: tuple[Run, ...], html: str) -> None:
    den = _of(runs, "DEN")
    for row, (group, born) in zip(_cells(html, "growth"), den.born.items(), strict=True):
        counts = [born.count(number) for number in (1, 2, 3)]
        assert row == [group, *map(str, counts), str(len(born)), str(den.widths[group])]
        assert den.records[-1].groups[group].units == len(born)


def test_capacity_and_records_on_the_page_are_the_stored_ones(
    runs: tuple[Run, ...], html: str
) -> None:
    den, single = (_of(runs, name).results for name in ("DEN", "DNN-STL"))
    assert den is not None
    assert single is not None
    whole = _of(runs, "DNN-MTL").summary.parameters
    sizes, records = _cells(html, "capacity"), _cells(html, "records")
    for i, name in enumerate(NAMES):
        both = [f"{results.capacity[i].parameters / whole:.2f}" for results in (den, single)]
        assert sizes[i] == [name, *both]
        at = _of(runs, "DEN").records[i].groups["hidden1"]
        numbers = (at.selected, at.added, at.dropped, at.split, at.units)
        assert records[i][:6] == [name, *map(str, numbers)]


def test_names_are_shown_as_they_are_and_run_nothing(html: str) -> None:
    assert "<script" not in html
    assert "<data>" not in html
    assert html.count("&lt;script&gt;") > 5
    assert "$x_1$ &amp; Co" in html[html.index("<svg") : html.index("</svg>")]


def test_the_page_loads_nothing(html: str) -> None:
    targets = re.findall(r'(?:src|href|action|data)="([^"]*)"', html)
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert "http" not in html
    assert not re.search(r"url\((?!#)|@import|<link", html)


def test_ids_are_unique_and_references_lead_somewhere(html: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"|labelledby="([^"]+)"', html)
    assert {name for names in used for name in names if name} <= set(ids)


def test_every_chart_has_words_and_a_table(html: str) -> None:
    charts = re.findall(r'<figure><svg [^>]*role="img" aria-label="([^"]+)"', html)
    assert len(charts) == 3
    assert html.count("<figure>") == html.count("</figure>\n<details><summary>The numbers") == 3


def test_a_run_comes_back_from_its_json(runs: tuple[Run, ...]) -> None:
    again = [Run.from_json(run.to_json()) for run in runs]
    assert [run.to_json() for run in again] == [run.to_json() for run in runs]
    assert page(again) == page(runs)


def test_the_same_seed_gives_the_same_scores(runs: tuple[Run, ...]) -> None:
    again = _tiny(NAMES[:2])
    whole, part = _of(runs, "DEN").results, _of(again, "DEN").results
    assert whole is not None
    assert part is not None
    assert (
        whole.matrix()[:2, :2][[0, 1, 1], [0, 0, 1]] == part.matrix()[[0, 1, 1], [0, 0, 1]]
    ).all()


def test_mtl_is_the_measure_of_capacity_and_forgets_nothing(runs: tuple[Run, ...]) -> None:
    joint = _of(runs, "DNN-MTL")
    assert joint.summary.capacity == 1
    assert joint.summary.forgetting is None
    assert joint.results is None
    assert [len(scores) for scores in joint.scores.values()] == [3, 3]


def test_a_single_task_has_a_page() -> None:
    one = _tiny(NAMES[:1])
    assert _of(one, "DEN").summary.forgetting is None
    assert _cells(page(one), "methods")[0][2] == "–"


def test_the_command_ends_in_a_table_and_the_place_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "run", partial(demo.run, widths=WIDTHS, budget=BUDGET))
    out = tmp_path / "[new]" / "place"
    cli.main(["demo", "--out", str(out), "--tasks", "2", "--seed", "3"])
    printed = capsys.readouterr().out
    for word in ("DEN", "DNN-STL", "DNN-MTL", "AUROC", "forgetting", "capacity", "seconds"):
        assert word in printed
    assert printed.splitlines()[-2:] == [
        f"Report   {out / 'report.html'}",
        f"Numbers  {out / '*.json'}",
    ]
    stored = read_runs([out])
    assert {(run.method, run.seed, len(run.tasks), run.data) for run in stored} == {
        (method, 3, 2, "digits") for method in demo.METHODS
    }
    assert {run.command for run in stored} == {"lifelong demo --seed 3 --tasks 2"}
    plain = msgspec.json.decode((out / "den-seed-3.json").read_bytes())
    assert plain["matrix"]["meaning"].startswith("R[i, j]")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["demo", "--tasks", "11"], "lifelong: --tasks must be 2 to 10, not 11\n"),
        (["demo", "--tasks", "1"], "lifelong: --tasks must be 2 to 10, not 1\n"),
        (["demo", "--seed", "-1"], "lifelong: --seed must be 0 or more, not -1\n"),
        (["demo", "--seed", "x"], "--seed"),
        (["dmeo"], "dmeo"),
        ([], "Missing subcommand"),
    ],
)
def test_bad_usage_is_2(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err


def test_a_file_in_the_way_is_told_in_one_line_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "under"):
        with pytest.raises(SystemExit) as stop:
            cli.main(["demo", "--out", str(out)])
        assert stop.value.code == 1
        printed = capsys.readouterr()
        assert printed.err.startswith("lifelong: ")
        assert str(out) in printed.err
        assert printed.err.count("\n") == 1
        assert printed.out == ""


def test_an_interrupt_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_args: object, **_options: object) -> Run:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupted)
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--out", str(tmp_path)])
    assert stop.value.code == 130
    assert capsys.readouterr().err == "lifelong: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["--version"])
    assert re.fullmatch(r"lifelong \d+\.\d+\.\d+\n", capsys.readouterr().out)
    for args in (["--help"], ["demo", "--help"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(args)
        assert stop.value.code == 0
    assert "--tasks" in capsys.readouterr().out


def test_report_and_figures_do_not_import_torch() -> None:
    source = Path(cli.__file__).parent
    files = [source / "report.py", source / "runs.py", *(source / "figures").glob("*.py")]
    # The package itself imports torch, so what the modules import is read from their text.
    imports = [line for file in files for line in file.read_text().splitlines() if "import" in line]
    allowed = r"lifelong\.(figures|results|records|runs)\b"
    assert all("torch" not in line for line in imports)
    assert all(re.search(allowed, line) for line in imports if "from lifelong" in line)
