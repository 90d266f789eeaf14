"""The page: what it refuses, what stands in it, and what a real browser makes of it."""

import re
import shutil
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import (
    sync_playwright,
)

from lifelong.evaluation.runs import Run, RunError
from lifelong.evaluation.usage import common
from lifelong.records import Answers
from lifelong.report import page as report
from lifelong.report.figures import answers, drawing, drift, growth, heritage, scores
from lifelong.report.page import forgetting_points, page
from made_up import GROUPS, TENSORS, made_up

EVIL = '<script>alert("x")</script>'
ALSO_EVIL = '<img src="x" onerror="alert(1)">'
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
SECONDS = 3  # that a page may take to be drawn


def _renamed(run, names, **changes):
    """The same run with tasks of other names."""
    text = run.to_json().decode()
    for old, new in names.items():
        text = text.replace(msgspec.json.encode(old).decode(), msgspec.json.encode(new).decode())
    return msgspec.structs.replace(Run.from_json(text), **changes)


def _together(run, method):
    """As if all tasks had been learned at once."""
    return msgspec.structs.replace(
        run,
        method=method,
        matrix=msgspec.Raw("null"),
        records=run.records[:1],
        born={},
        used={},
    )


@pytest.fixture(scope="module")
def runs():
    names = {"task 2": EVIL, "task 3": ALSO_EVIL, "task 4": "$x_1$ & Co, a rather long name of it"}
    found = []
    for seed in (1, 2):
        flat = made_up(6, method="DNN-STL", seed=seed, grows=False)
        for run in (made_up(6, seed=seed), flat, _together(flat, "DNN-MTL")):
            note = ("mind <b>this</b>",) if run.method == "DEN" and seed == 1 else ()
            found.append(_renamed(run, names, warnings=note, source="<made> up"))
    return tuple(found)


@pytest.fixture(scope="module")
def html(runs):
    return page(runs)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no browser: install Debian's chromium to test the report in one")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Opened:
    """A page in a browser, and everything that it said, asked for or broke on."""

    def __init__(self, tab, file):
        self.tab = tab
        self.said: list[str] = []
        self.asked: list[str] = []
        tab.on("console", lambda message: self._hear(message))
        tab.on("pageerror", lambda error: self._break(error))
        tab.on("dialog", lambda dialog: (self.said.append("a dialog"), dialog.dismiss()))
        tab.on("request", lambda request: self._ask(request))
        self._devtools = tab.context.new_cdp_session(tab)
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(file.as_uri())
        tab.wait_for_function("document.documentElement.dataset.drawn", timeout=60_000)

    def read(self):
        """Scroll past every chart, since one is drawn when it comes near the screen."""
        for place in self.tab.query_selector_all(".chart:not([hidden])"):
            place.scroll_into_view_if_needed()
            self.tab.wait_for_function("place => place.querySelector('svg') !== null", arg=place)
        self.tab.evaluate("scrollTo(0, 0)")
        return self

    def _hear(self, message):
        self.said.append(message.text)

    def _break(self, error):
        self.said.append(str(error))

    def _ask(self, request):
        self.asked.append(request.url)

    @property
    def seconds(self):
        """Of work on the page so far, however busy the machine is with other things."""
        metrics = self._devtools.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def table(self, figure):
        """What stands in the table behind a figure, headings first."""
        self.tab.evaluate(f"document.querySelector('#{figure} details').open = true")
        self.tab.wait_for_selector(f"#{figure} details table")
        return self.tab.eval_on_selector_all(
            f"#{figure} details tr",
            "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
        )

    def choose(self, switch, words):
        group = self.tab.get_by_role("group", name=switch)
        group.get_by_role("radio", name=words, exact=True).check()
        self.tab.wait_for_function(
            f"document.getElementById('said').textContent.includes('{words}')"
        )

    def pointed_at(self, marks, number):
        """What is told of one of the marks of a figure."""
        mark = self.tab.locator(marks).nth(number)
        mark.scroll_into_view_if_needed()
        self.tab.mouse.move(0, 0)
        mark.hover(force=True)
        self.tab.wait_for_selector("#vg-tooltip-element.visible")
        return self.tab.inner_text("#vg-tooltip-element")


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a text as a page; whatever the test does then, the page must stay quiet and alone."""
    done: list[tuple[Opened, Path]] = []

    def open_(text, unread=False, **options):
        file = tmp_path / f"page {len(done)}.html"
        file.write_text(text, encoding="utf-8")
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
        done.append((Opened(tab, file), file))
        return done[-1][0] if unread else done[-1][0].read()

    yield open_
    for one, file in done:
        assert one.said == []
        assert one.asked == [file.as_uri()]
        one.tab.close()


def _of(runs, method, seed):
    return next(run for run in runs if (run.method, run.seed) == (method, seed))


def _matrix_table(run, measure):
    results = run.results
    assert results is not None
    r = results.matrix(measure)
    lines = [
        [name, *(f"{score:.4f}" if score == score else "" for score in r[i])]
        for i, name in enumerate(run.tasks)
    ]
    return [["after task i", *run.tasks], *lines]


# What stands in the text.


def test_a_page_is_small_and_names_are_text(html):
    assert len(html.encode()) < 2_000_000
    for name in (EVIL, ALSO_EVIL, "<made>", "<b>this"):
        assert name not in html
    assert "&lt;script&gt;alert" in html
    assert "mind &lt;b&gt;this&lt;/b&gt;" in html


def test_a_page_cannot_load_anything(html):
    assert "default-src 'none'" in html
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(link|iframe|img|object)|https?://|@import|url\(", own)


def test_ids_are_unique_and_references_lead_somewhere(html):
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"|labelledby="([^"]+)"', html)
    assert {name for names in used for name in names if name} <= set(ids)


CELL = r'<td(?: class="best")?>([^<]*)(?:<span class="hidden"> \(best\)</span>)?</td>'


def _stderr(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


def test_methods_are_the_mean_and_standard_error_of_their_seeds(runs, html):
    cells = re.findall(CELL, html[html.index('id="methods"') :])
    auroc = [run.summary.auroc for run in runs if run.method == "DEN"]
    forgetting = [100 * (run.summary.forgetting or 0) for run in runs if run.method == "DNN-STL"]
    assert cells[0] == f"{np.mean(auroc):.4f} ± {_stderr(auroc):.4f}"
    assert cells[9 + 2] == f"{np.mean(forgetting):.2f} ± {_stderr(forgetting):.2f}"
    assert cells[8] == "2"


def test_one_seed_is_shown_as_it_is(runs):
    run = runs[0]
    s = run.summary
    cells = re.findall(CELL, page([run]).split('id="methods"')[1])
    assert cells[:9] == [
        f"{s.auroc:.4f}",
        f"{s.accuracy:.4f}",
        forgetting_points(s.forgetting),
        f"{s.capacity:.2f}",
        f"{s.bytes:,}",
        f"{s.parameters:,}",
        f"{s.nonzero:,}",
        f"{s.seconds:.1f}",
        "1",
    ]


def test_how_it_was_made_is_told(html):
    made = html[html.index('id="ask-made"') :]
    for words in ("<code>none</code>", "none: &lt;made&gt; up", "1, 2", "python 3", "8 inputs"):
        assert words in made
    assert "<td>budget.steps</td><td>3</td>" in made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "other"}, "different data .* has data 'none'.* has 'other'; report them apart"),
        ({"source": "a look-alike"}, "has source 'made up'.* has 'a look-alike'"),
        ({"tasks": ("a", "b", "c")}, r"different tasks .*learned 3 \('task 1'.* 3 \('a', 'b'"),
        ({}, "two runs of DEN with seed 0; give one of them"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(changes, message):
    run = made_up(3)
    with pytest.raises(RunError, match=message):
        page([run, msgspec.structs.replace(run, **changes)])
    with pytest.raises(RunError, match="at least one run"):
        page([])


def test_seeds_may_have_tasks_of_their_own():
    others = {"task 1": "task A", "task 2": "task B"}
    runs = [made_up(3, seed=1), _renamed(made_up(3, seed=2), others)]
    text = page(runs)
    assert "they are others for each seed" in text
    shown = scores.by_task(runs).views["auroc",].data["rows"]
    assert shown["task"] == ["task 3"]
    apart = _renamed(made_up(3, seed=2), {**others, "task 3": "task C"})
    assert 'id="tasks"' not in page([runs[0], apart])
    with pytest.raises(RunError, match=r"different tasks .*learned 3 .* seed 2 4 "):
        page([runs[0], made_up(4, seed=2)])


def test_a_look_alike_and_a_single_seed_are_said_to_be_so():
    text = page([msgspec.structs.replace(made_up(3), look_alike=True)])
    assert "look-alike of the original" in text
    assert "One seed" in text


def test_where_all_seeds_do_not_fit_the_first_do(monkeypatch):
    some = [made_up(3, seed=seed) for seed in (1, 2)]
    whole, first = page(some), page(some[:1])
    assert "to keep this file small" not in whole
    monkeypatch.setattr(report, "LIMIT", (len(whole) + len(first)) // 2)
    assert re.search(r"1, 2; to keep this file small, only tables and means.* cover", page(some))


def test_one_task_and_no_tasks_in_common_have_a_page():
    assert "1 tasks" not in page([made_up(1)])
    lonely = msgspec.structs.replace(made_up(3), used=dict.fromkeys(GROUPS, ((), (), ())))
    assert "3 tasks" in page([lonely])


@pytest.mark.parametrize("sigma", [0.03, 0.4, 1.0])
def test_every_unit_is_drawn_once_and_sigma_is_an_edge(sigma):
    run = made_up(5, sigma=0.03)
    run = msgspec.structs.replace(run, settings={**run.settings, "sigma": sigma})
    shown = drift.distances([run]).views["DEN", 0].data
    labels = list(dict.fromkeys(shown["rows"]["bin"]))
    edge = labels.index(shown["sigma"]["bin"][0])
    every = above = 0
    for group, values in drift.drifts(run).items():
        mine = [i for i, layer in enumerate(shown["rows"]["layer"]) if layer == group]
        units = dict(zip(labels, (shown["rows"]["units"][i] for i in mine), strict=True))
        assert sum(units.values()) == len(values)
        assert units["0"] == sum(value == 0 for value in values)
        beyond = sum(units[label] for label in labels[edge + 1 :])
        assert beyond == sum(value > sigma for value in values)
        every, above = every + len(values), above + beyond
    # All bars are equally wide: what is told of the share is what is drawn of it.
    assert f"{above:,} of {every:,} units above ({above / every:.1%})" in shown["sigma"]["title"][0]


def test_a_drift_of_exactly_sigma_is_not_above_it():
    run = made_up(3, sigma=0.05)
    exact = [
        msgspec.structs.replace(
            record,
            groups={
                group: msgspec.structs.replace(at, drift=tuple(0.05 for _ in at.drift))
                for group, at in record.groups.items()
            },
        )
        for record in run.records
    ]
    shown = drift.distances([msgspec.structs.replace(run, records=tuple(exact))])
    assert ": 0 of " in shown.views["DEN", 0].data["sigma"]["title"][0]


@pytest.mark.parametrize("moved", [5e-324, 1.0, 1.7e308])
def test_drift_as_small_or_large_as_a_number_can_be_is_drawn(moved):
    bins = drift._Doublings.of(0.0, [moved])
    assert bins.counts([0.0, moved])[-1] == 1
    assert len(bins.labels) == 2


def test_drift_without_sigma_has_no_line():
    run = msgspec.structs.replace(made_up(4), settings={})
    shown = drift.distances([run]).views["DEN", 0].data
    assert shown["sigma"] == {"bin": [], "title": []}
    assert sum(shown["rows"]["units"]) == sum(map(len, drift.drifts(run).values()))


def test_a_colour_is_the_same_number_for_every_method_and_seed(runs):
    figure = scores.matrix(runs)
    for measure in ("auroc", "accuracy"):
        views = [view for key, view in figure.views.items() if key[2] == measure]
        shown = [score for view in views for score in view.data["rows"]["score"]]
        assert {tuple(view.data["ends"]["score"]) for view in views} == {(min(shown), max(shown))}


def test_the_best_of_each_column_is_marked(runs, html):
    table = html[html.index('id="methods"') : html.index("</table>")]
    best = re.findall(r'<td class="best">([^<]*)<', table)
    auroc = {
        method: np.mean([run.summary.auroc for run in runs if run.method == method])
        for method in ("DEN", "DNN-STL", "DNN-MTL")
    }
    assert any(f"{max(auroc.values()):.4f}" in cell for cell in best)
    assert not any(f"{min(auroc.values()):.4f}" in cell for cell in best)
    assert 'class="best"' not in page(runs[:1])


def test_a_page_opens_with_the_method_that_matters():
    runs = [made_up(3, method=name) for name in ("DNN-STL", "DEN", "DEN-auto")]
    assert "<title>DEN-auto: 3 tasks" in page(runs)
    assert "<title>DEN: 3 tasks" in page(runs[:2])


def _names(text, names):
    return drawing.axis_labels([text.format(name) for name in names])


def test_long_names_are_told_apart_on_axes():
    assert drawing.axis_labels([f"task {n}" for n in range(50)]) == {}
    short = _names("customer churn in the {} region", ["northern", "southern", "far eastern"])
    assert list(short.values()) == ["…northern…", "…southern…", "…far eastern…"]
    alike = _names("{} is what these names have", ["b" * 30 + str(n) + "c" * 30 for n in range(3)])
    assert list(alike.values()) == ["1", "2", "3"]
    many = [f"a rather long name with {n} in the middle of it" for n in range(500)]
    labels = drawing.axis_labels(many)
    assert labels[drawing.label(many, range(0, 7))] == "…0… … …6…"
    assert len({labels[name] for name in many}) == 500


@given(
    st.lists(st.text(max_size=40), min_size=2, max_size=12, unique=True),
    st.text(max_size=10),
    st.text(max_size=10),
)
def test_short_names_differ_and_fit(names, before, after):
    names = [f"{before}{name}{after}" for name in names]
    short = drawing.short_names(names)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= drawing.LONGEST + 2


# What a browser makes of it.


def test_the_matrix_and_every_switch(opened, runs, html):
    seen = opened(html)
    assert seen.table("matrix") == _matrix_table(_of(runs, "DEN", 1), "auroc")
    seen.choose("measure", "accuracy")
    assert seen.table("matrix") == _matrix_table(_of(runs, "DEN", 1), "accuracy")
    seen.choose("seed", "2")
    assert seen.table("matrix") == _matrix_table(_of(runs, "DEN", 2), "accuracy")
    seen.choose("method", "DNN-STL")
    assert seen.table("matrix") == _matrix_table(_of(runs, "DNN-STL", 2), "accuracy")
    assert seen.tab.locator("#births .chart").is_hidden()
    assert "does not grow" in seen.tab.inner_text("#births")
    seen.choose("method", "DNN-MTL")
    assert "all tasks at once" in seen.tab.inner_text("#matrix .none")
    seen.choose("method", "DEN")
    assert seen.tab.locator("#births .chart svg").is_visible()


def test_the_numbers_behind_growth_and_sharing_are_the_stored_ones(opened, runs, html):
    seen, run = opened(html), _of(runs, "DEN", 1)
    births = [
        [group, run.tasks[number - 1], str(born.count(number)), str(sum(b <= number for b in born))]
        for group, born in run.born.items()
        for number in sorted(set(born))
    ]
    assert seen.table("births")[1:] == births
    events = seen.table("events")
    for record, line in zip(run.records, events[1:], strict=True):
        numbers = dict(zip(events[0], line, strict=True))
        for group, at in record.groups.items():
            for event in ("selected", "added", "dropped", "split"):
                assert numbers[f"{group} {event}"] == str(getattr(at, event))
    units = {(line[0], int(line[1])): line[2:] for line in seen.table("weave")[1:]}
    for group, born in run.born.items():
        for unit, number in enumerate(born):
            users = [t for t, each in zip(run.tasks, run.used[group], strict=True) if unit in each]
            told = [run.tasks[number - 1], str(len(users)), ", ".join(users)]
            assert units.pop((group, unit)) == told
    assert units == {}
    shares = common(run)
    for i, line in enumerate(seen.table("overlap")[1:], 1):
        assert line[: i + 1] == [run.tasks[i], *(f"{share:.3f}" for share in shares[i, :i])]


def test_the_weights_that_tasks_overwrite_and_from_whom_they_inherit(opened):
    run = made_up(4, method="DEN-W", patched=True)
    seen = opened(page([run, made_up(4, method="DEN")]))
    assert "overwrite no weights" in seen.tab.inner_text("#changed .none")
    seen.choose("method", "DEN-W")
    head, *lines = seen.table("changed")
    assert head == ["task", *TENSORS]
    assert lines == [[name, f"{n / 100:.4f}", "0.0000"] for n, name in enumerate(run.tasks, 1)]
    untrained = heritage.UNTRAINED
    starts = [untrained, untrained, "task 2", untrained]
    assert seen.table("heritage")[1:] == [
        [name, start, str(n)]
        for n, (name, start) in enumerate(zip(run.tasks, starts, strict=True), 1)
    ]
    chosen = seen.table("selection")
    for (before, record), line in zip(pairwise(run.records), chosen[1:], strict=True):
        shares = [at.selected / before.groups[g].units for g, at in record.groups.items()]
        assert line == [record.task, *(f"{share:.3f}" for share in shares)]


def test_what_a_task_inherits_and_changes_is_all_that_it_found():
    run = made_up(4, method="DEN-W", patched=True)
    shown = heritage.inherited([run]).views["DEN-W", 0].data["rows"]
    for number, name in enumerate(run.tasks, 1):
        mine = [i for i, task in enumerate(shown["task"]) if task == name]
        told = {shown["what"][i]: shown["entries"][i] for i in mine}
        assert told == {"inherited": 200 - number, "changed": number}  # of two tensors of 100
    assert shown["from"][::2] == [
        heritage.UNTRAINED,
        heritage.UNTRAINED,
        "task 2",
        heritage.UNTRAINED,
    ]
    assert heritage.inherited([made_up(4)]).views == {}


def _answering(run):
    """The same run with answers: of task n, n rows are found and one is not."""
    told = tuple(
        Answers("probability", ((5, *[0] * 18, 2), (1, *[0] * 18, number)))
        for number in range(1, len(run.tasks) + 1)
    )
    return msgspec.structs.replace(run, answers=told)


def test_predictions_of_a_chosen_task(opened):
    seen = opened(page([_answering(made_up(6)), made_up(6, method="DNN-STL", grows=False)]))
    assert seen.tab.locator("#confusion").count() == 0
    for number in (1, 4):
        seen.tab.select_option("[data-switch=task]", str(number - 1))
        seen.tab.wait_for_function(
            f"document.getElementById('said').textContent.includes('task {number}')"
        )
        assert seen.table("probabilities")[1:] == [
            ["no", "0.00", "0.05", "5"],
            ["no", "0.95", "1.00", "2"],
            ["yes", "0.00", "0.05", "1"],
            ["yes", "0.95", "1.00", str(number)],
        ]
    words = seen.tab.get_attribute("#probabilities .chart", "aria-label")
    assert "Of 5 rows of which it is true, 4 get one half or more; of 7 others 2." in words
    seen.choose("method", "DNN-STL")
    assert "were not kept" in seen.tab.inner_text("#probabilities")


def test_probabilities_are_drawn_from_0_to_1_whatever_they_are(runs):
    spec = answers.probabilities([_answering(run) for run in runs]).spec()
    assert [scale["domain"] for scale in spec["scales"] if scale["name"] == "x"] == [[0, 1]]


def test_the_colours_of_two_tasks_have_two_labels():
    spec = growth.births([made_up(2)]).spec()
    assert spec["legends"][0]["values"] == [1, 2]


def test_confusion_of_a_task_of_classes():
    table = Answers("class", ((3, 1), (0, 2)))
    run = msgspec.structs.replace(made_up(2), answers=(table, table))
    shown = answers.confusion([run]).views["DEN", 0, "task 1"]
    assert shown.data["rows"]["number"] == [3, 1, 0, 2]
    assert "5 of 6 are right" in shown.words
    assert answers.probabilities([run]).views == {}
    assert len(answers.shown_tasks([_answering(made_up(500))])) <= answers.MOST


@pytest.mark.parametrize(
    "told",
    [
        (Answers("class", ((1,),)),),
        (Answers("class", ((1, 2), (3,))),) * 2,
        (Answers("class", ()),) * 2,
        (Answers("class", ((-1,),)),) * 2,
        (Answers("class", ((0,) * 1001,)),) * 2,
    ],
)
def test_strange_answers_are_refused(told):
    run = msgspec.structs.replace(made_up(2), answers=told)
    with pytest.raises(RunError, match="answers"):
        Run.from_json(run.to_json())


def test_two_sets_of_runs_are_compared(opened):
    first = [made_up(4, seed=seed) for seed in (1, 2)]
    better = [
        msgspec.structs.replace(
            run,
            scores={name: tuple(s + 0.01 for s in each) for name, each in run.scores.items()},
            settings={**run.settings, "sigma": 0.1, "budget": {"steps": 9}},
        )
        for run in first
    ]
    other = made_up(4, method="DNN-STL", seed=1, grows=False)
    text = report.compare({"before": [*first, other], "after": better})
    assert "1.0 points of AUROC above DEN (before) with 100% of its bytes" in text
    assert "sigma is 0.05 in the first and 0.1 in the second" in text
    assert "budget.steps is 3 in the first and 9 in the second" in text
    seen = opened(text)
    lines = seen.table("differences")[1:]
    assert [line[0] for line in lines] == list(first[0].tasks)
    assert {line[-1] for line in lines} == {"0.0100"}
    assert seen.tab.locator("input[data-switch=method]:checked").get_attribute("value") == "0"
    assert "DEN (after)" in seen.tab.inner_text("header")
    with pytest.raises(RunError, match="no method in common"):
        report.compare({"before": [other], "after": better})


def test_a_run_that_does_not_tell_the_sizes_of_its_tensors_still_tells_its_heritage():
    run = msgspec.structs.replace(made_up(4, patched=True), entries={})
    assert heritage.changed([run]).views == {}
    assert len(heritage.heritage([run]).views) == 1


def test_the_numbers_behind_scores_and_cost_are_the_stored_ones(opened, runs, html):
    seen = opened(html)
    results = [run.results for run in runs if run.method == "DEN"]
    curves = np.array([r.averages() for r in results if r is not None])
    mine = [line for line in seen.table("averages")[1:] if line[0] == "DEN"]
    for i, line in enumerate(mine):
        mean, low, high = curves[:, i].mean(), curves[:, i].min(), curves[:, i].max()
        assert line[1:] == [str(i + 1), f"{mean:.4f}", f"{low:.4f}", f"{high:.4f}"]
    assert len(mine) == 6
    flat = [line for line in seen.table("averages")[1:] if line[0] == "DNN-MTL"]
    ends = np.mean([np.mean(run.scores["auroc"]) for run in runs if run.method == "DNN-MTL"])
    assert {line[2] for line in flat} == {f"{ends:.4f}"}
    by_task = {tuple(line[:2]): line[2] for line in seen.table("tasks")[1:]}
    scores = [run.scores["auroc"][1] for run in runs if run.method == "DNN-STL"]
    assert by_task[EVIL, "DNN-STL"] == f"{np.mean(scores):.4f}"
    sizes = {tuple(line[:2]): line[2:] for line in seen.table("sizes")[1:]}
    values = 1000 + 50 * 5
    assert sizes["DEN", "6"] == [str(4 * values), str(values), str(900 + 40 * 5)]
    seconds = sum(float(line[2]) for line in seen.table("seconds")[1:])
    assert seconds == pytest.approx(_of(runs, "DEN", 1).summary.seconds, abs=0.02)
    points = [line for line in seen.table("performance")[1:] if line[:2] == ["DEN", "2"]]
    auroc = f"{_of(runs, 'DEN', 2).summary.auroc:.4f}"
    assert points == [["DEN", "2", "1.250", str(values), auroc]]


def test_pointing_tells_the_numbers_and_evil_names_are_text(opened, runs, html):
    seen, run = opened(html), _of(runs, "DEN", 1)
    scripts = seen.tab.locator("script").count()
    told = seen.pointed_at("#matrix .layer_1_marks path", 2)  # after task 2, task 2
    assert told.count(EVIL) == 2
    assert f"{run.scores['auroc'][1]:.4f}" in told
    told = seen.pointed_at("#weave .mark-rect path", -1)
    assert all(word in told for word in ("hidden2", "introduced by", "tasks that use it"))
    told = seen.pointed_at("#births .mark-rect path", 1)
    assert all(word in told for word in (EVIL, "selected at this task", "units introduced"))
    assert EVIL[:8] in seen.tab.inner_text("#matrix .chart")
    assert seen.tab.locator("script").count() == scripts
    assert seen.tab.locator("main img").count() == 0


def test_every_figure_has_words_and_a_table(opened, html):
    seen = opened(html)
    figures = seen.tab.eval_on_selector_all("figure", "all => all.map(figure => figure.id)")
    assert len(figures) == 14
    for figure in figures:
        words = seen.tab.get_attribute(f"#{figure} .chart", "aria-label")
        assert words
        assert seen.tab.get_attribute(f"#{figure} .chart", "role") == "img"
        table = seen.table(figure)
        assert len(table) > 1
        assert all(len(line) == len(table[0]) for line in table)


def _saved(seen, figure, kind, tmp_path):
    with seen.tab.expect_download() as download:
        seen.tab.click(f"#{figure} [data-save={kind}]")
    download.value.save_as(tmp_path / "saved")
    seen.asked = [url for url in seen.asked if not url.startswith("blob:")]
    return download.value.suggested_filename, (tmp_path / "saved").read_bytes()


def test_a_saved_figure_tells_what_it_is_and_needs_no_page(opened, html, tmp_path):
    seen = opened(html, color_scheme="dark")
    seen.choose("seed", "2")
    seen.choose("measure", "accuracy")
    name, saved = _saved(seen, "matrix", "svg", tmp_path)
    assert name == "matrix-den-2-accuracy.svg"
    assert ElementTree.fromstring(saved).tag.endswith("svg")
    text = saved.decode()
    for words in ("Score of each task after each task", "DEN · seed 2 · accuracy"):
        assert words in text
    assert "currentColor" not in text  # the ink of the page, which is not there any more
    assert "var(" not in text
    (bar,) = re.findall(r"url\(([^)]*)\)", text)
    assert f'id="{bar.removeprefix("#")}"' in text
    assert "file:" not in text
    name, saved = _saved(seen, "averages", "svg", tmp_path)
    assert name == "averages-accuracy.svg"
    assert b"var(" not in saved


def test_a_figure_can_be_saved_as_pixels(opened, html, tmp_path):
    name, saved = _saved(opened(html), "weave", "png", tmp_path)
    assert name == "weave-den-1.png"
    assert saved.startswith(b"\x89PNG")


def test_what_is_not_there_cannot_be_saved(opened, html):
    seen = opened(html)
    seen.choose("method", "DNN-STL")
    assert seen.tab.locator("#births [data-save=png]").is_hidden()
    assert seen.tab.locator("#births summary").is_hidden()
    assert seen.tab.locator("#matrix [data-save=png]").is_visible()


def test_the_keyboard_is_enough(opened, html):
    seen = opened(html)
    for _ in range(12):
        seen.tab.keyboard.press("Tab")
        if seen.tab.evaluate("document.activeElement.dataset.switch") == "measure":
            break
    seen.tab.keyboard.press("ArrowRight")
    seen.tab.wait_for_function("document.getElementById('said').textContent.includes('accuracy')")
    seen.tab.focus("#matrix summary")
    seen.tab.keyboard.press("Enter")
    assert seen.tab.wait_for_selector("#matrix details table")


@pytest.mark.parametrize("width", [360, 2560])
def test_narrow_and_wide(opened, html, width):
    seen = opened(html, viewport={"width": width, "height": 800})
    assert seen.tab.evaluate("document.documentElement.scrollWidth") <= width
    for box in seen.tab.locator(".chart").all():
        inside, drawn = box.bounding_box(), box.locator("svg").first.bounding_box()
        assert inside is not None
        assert drawn is not None
        assert 150 < drawn["width"] <= inside["width"] + 1
        marks = box.locator(".role-frame path.background").first.bounding_box()
        assert marks is not None
        assert marks["height"] >= 199
    hint = seen.tab.locator(".more")
    assert hint.is_visible() == (width == 360)


def test_a_window_that_changes_its_width_takes_the_charts_along(opened, html):
    seen = opened(html)
    seen.tab.set_viewport_size({"width": 700, "height": 800})
    seen.tab.wait_for_function(
        "document.querySelector('#weave svg').getBoundingClientRect().width < 690"
        " && document.querySelector('#weave svg').getAttribute('width') < 690"
    )
    assert seen.tab.evaluate("document.documentElement.scrollWidth") <= 700


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_is_readable_on_paper(opened, html, scheme):
    seen = opened(html, color_scheme=scheme)
    ink, paper = seen.tab.evaluate(
        """[getComputedStyle(document.querySelector('#matrix .role-axis-label text')).fill,
            getComputedStyle(document.body).backgroundColor]"""
    )
    bright = [sum(map(int, re.findall(r"\d+", color)[:3])) / 765 for color in (ink, paper)]
    assert abs(bright[0] - bright[1]) > 0.6
    assert (bright[1] > 0.5) == (scheme == "light")


def test_print_is_on_white_and_without_switches(opened, html):
    seen = opened(html, color_scheme="dark")
    seen.tab.emulate_media(media="print", color_scheme="dark")
    style = "getComputedStyle(document.body).backgroundColor"
    assert seen.tab.evaluate(style) == "rgb(255, 255, 255)"
    assert seen.tab.locator(".bar").is_hidden()
    assert seen.tab.pdf(format="A4").startswith(b"%PDF")


def test_a_page_that_nobody_scrolled_is_printed_with_every_chart(opened, html):
    unread, read = opened(html, unread=True), opened(html)
    drawn = "document.querySelectorAll('.chart svg').length"
    assert unread.tab.evaluate(drawn) < read.tab.evaluate(drawn)
    papers = [len(seen.tab.pdf(format="A4")) for seen in (unread, read)]
    assert papers[0] == pytest.approx(papers[1], rel=0.02)
    assert unread.tab.evaluate(drawn) == read.tab.evaluate(drawn)


def test_a_choice_reaches_charts_that_are_not_drawn_yet(opened, html):
    seen = opened(html, unread=True)
    words = "#weave .chart"
    before = seen.tab.get_attribute(words, "aria-label")
    seen.choose("seed", "2")
    assert seen.tab.get_attribute(words, "aria-label") != before
    assert seen.tab.locator("#weave svg").count() == 0
    seen.read()
    assert seen.tab.locator("#weave svg").count() == 1


AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_or_moderate(opened, runs, scheme):
    if not AXE.is_file():
        pytest.skip("no axe: `npm install --no-save axe-core` here lets it check the report")
    seen = opened(page([_answering(run) for run in runs]), color_scheme=scheme)
    seen.tab.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    seen.tab.add_script_tag(path=AXE)
    seen.asked = seen.asked[:1]
    found = seen.tab.evaluate("axe.run()")["violations"]
    assert [(each["impact"], each["id"], len(each["nodes"])) for each in found] == []


@pytest.mark.parametrize("tasks", [50, 500])
def test_many_tasks_are_drawn_in_time(opened, tasks):
    """A time is asserted: it is a promise, and it hangs on how many marks are drawn."""
    some = [
        made_up(tasks, newcomers=2, patched=True),
        made_up(tasks, method="DNN-STL", grows=False, newcomers=2),
    ]
    text = page(some)
    assert len(text) < 2_000_000
    seen = opened(text, unread=True)
    assert seen.tab.locator(".chart svg").count() < seen.tab.locator("figure").count() / 2
    assert seen.seconds < SECONDS
    assert seen.read().tab.locator("svg *").count() < 25_000


def test_a_page_of_a_model_has_no_scores(opened):
    run = made_up(4)
    summary = msgspec.structs.replace(run.summary, auroc=None, accuracy=None, forgetting=None)
    model = msgspec.structs.replace(
        run, summary=summary, scores={}, matrix=msgspec.Raw("null"), data="", source=""
    )
    seen = opened(page([model]))
    figures = seen.tab.eval_on_selector_all("figure", "all => all.map(figure => figure.id)")
    assert figures == [
        "seconds",
        "births",
        "events",
        "selection",
        "weave",
        "sources",
        "overlap",
        "distances",
    ]
    assert seen.tab.locator(".switch").count() == 0
    assert "nothing here is scored" in seen.tab.inner_text("main")
