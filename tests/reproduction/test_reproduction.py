"""Verdicts by rule, and a page that hides nothing."""

import msgspec
import pytest
from known_runs import measured

from lifelong.reproduction import claims
from lifelong.reproduction.claims import Evidence, findings
from lifelong.reproduction.measured import CAPACITY, Mean
from lifelong.reproduction.page import page, read_summary, write_summary

RECIPES = (
    "figure3-variation",
    "figure3-cifar100",
    "figure3-awa",
    "figure3-animals50",
    "figure4",
    "figure5",
    "permuted",
)
NOISE = (-0.002, -0.001, 0.0, 0.001, 0.002)


def _evidence(**runs):
    return {
        name: Evidence(
            name,
            "paper",
            f"data of {name}",
            f"lifelong run {name}",
            runs.get(name.replace("-", "_"), ()),
        )
        for name in RECIPES
    }


def _seeds(method, auroc, **given):
    return measured(method, [auroc + noise for noise in NOISE], **given)  # type: ignore[arg-type]


def _found(evidence, recipe, claim):
    (found,) = [
        each
        for each in findings(evidence)
        if each.data == f"data of {recipe}" and each.claim.startswith(claim)
    ]
    return found


def test_without_runs_every_claim_is_there_and_not_measured():
    found = findings(_evidence())
    assert len(found) > 50
    assert {each.verdict for each in found} == {"not measured"}
    assert all(each.ours is None and each.seeds == 0 for each in found)
    text = page(found, _evidence(), [])
    assert "0 reproduced, 0 better, 0 not reproduced" in text
    assert text.count("not measured |") == len(found)


@pytest.mark.parametrize("recipe", ["figure3-variation", "permuted"])
def test_an_order_that_holds_and_one_that_does_not(recipe):
    runs = [
        *_seeds("DEN", 0.90),
        *_seeds("DNN-Progressive", 0.90),
        *_seeds("DNN-EWC", 0.85),
        *_seeds("DNN-L2", 0.86),
    ]
    evidence = _evidence(**{recipe.replace("-", "_"): runs})
    assert _found(evidence, recipe, "order: DEN").verdict == "reproduced"
    assert _found(evidence, recipe, "order: Progressive").verdict == "reproduced"
    broken = _found(evidence, recipe, "order: EWC")
    assert broken.verdict == "not reproduced"
    assert broken.ours == pytest.approx(-1.0)
    assert broken.seeds == 5
    text = page(findings(evidence), evidence, [])
    assert (
        f"- data of {recipe}: it does not hold: not that EWC is above L2 (-1.00 ± 0.00 points)."
        in text
    )


def test_an_order_that_is_within_its_error_is_told_from_one_that_is_reversed():
    runs = [
        *_seeds("DEN", 0.90),
        *_seeds("DNN-Progressive", 0.89),
        *measured("DNN-EWC", [0.85, 0.80]),
        *measured("DNN-L2", [0.80, 0.81]),
    ]
    evidence = _evidence(figure3_awa=runs)
    text = page(findings(evidence), evidence, [])
    assert "it does not hold: not clearly that EWC is above L2 (2.00 ± 3.00 points)." in text


def test_differences_are_taken_seed_by_seed():
    den = measured("DEN", [0.90, 0.70])
    stl = measured("DNN-STL", [0.69, 0.89, 0.5], first_seed=1)  # seed 1 is in both
    found = _found(
        _evidence(figure3_variation=[*den, *stl]), "figure3-variation", "DEN is above DNN-STL"
    )
    assert (found.seeds, found.ours) == (1, pytest.approx(1.0))
    assert found.stderr is None


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [(Mean(1.0, 0.4, 5), "reproduced"), (Mean(1.0, 0.6, 5), "not reproduced")],
)
def test_above_means_by_two_standard_errors(difference, verdict):
    assert claims.above(difference) == verdict


def test_numbers_are_judged_by_both_errors():
    judge = claims.near_auroc(0.744)
    assert judge(Mean(0.76, 0.003, 5)) == "reproduced"
    assert judge(Mean(0.84, 0.003, 5)) == "better"
    assert judge(Mean(0.70, 0.003, 5)) == "not reproduced"
    size = claims.near_capacity(1.39)
    assert [size(Mean(value, 0.0, 5)) for value in (1.0, 1.35, 1.8)] == [
        "better",
        "reproduced",
        "not reproduced",
    ]


def test_the_share_of_stls_capacity_is_that_of_the_smallest_den_on_its_level():
    runs = [
        *_seeds("DNN-STL", 0.90, capacity=10.0),
        *_seeds("DEN", 0.91, capacity=1.5),
        *_seeds("DEN", 0.899, capacity=1.0, part=CAPACITY, label="DEN, limit = 0.06", plain=False),
        *_seeds("DEN", 0.80, capacity=0.5, part=CAPACITY, label="DEN, limit = 0.03", plain=False),
    ]
    found = _found(
        _evidence(figure3_variation=runs), "figure3-variation", "DEN reaches STL's level"
    )
    assert found.ours == pytest.approx(10.0)
    assert (found.paper, found.verdict) == ("18", "better")


def test_a_den_that_never_reaches_stl_is_said_to():
    runs = [*_seeds("DNN-STL", 0.90, capacity=10.0), *_seeds("DEN", 0.88)]
    found = _found(_evidence(figure3_awa=runs), "figure3-awa", "DEN reaches STL's level")
    assert found.verdict == "not reproduced"
    assert found.ours == pytest.approx(-2.0)


def test_the_table_of_expansions_and_selective_retraining():
    runs = [
        *_seeds("DNN-L2", 0.85, seconds=20.0),
        *_seeds("DNN-L1", 0.80, seconds=9.0),
        *_seeds("L2-Selective", 0.87, seconds=10.0, selected=(156, 32)),
        *_seeds("DEN-Dynamic", 0.90, capacity=1.5),
        *_seeds("DEN-Constant-20", 0.88, capacity=2.0),
    ]
    evidence = _evidence(figure4=runs)

    def verdict(claim):
        return _found(evidence, "figure4", claim).verdict

    assert verdict("AUROC of DNN-L2") == "better"
    assert verdict("capacity of DEN-Dynamic") == "reproduced"
    assert verdict("AUROC of DEN-Constant-13") == "not measured"
    assert verdict("selective retraining is above L2") == "reproduced"
    assert verdict("training time of selective retraining over DNN-L2's") == "reproduced"
    assert verdict("training time of selective retraining over DNN-L1's") == "not reproduced"
    assert verdict("capacity of Dynamic over Constant-20's") == "reproduced"
    upper = _found(evidence, "figure4", "upper layers are selected less")
    assert upper.ours == pytest.approx((32 / 128) / (156 / 312))
    assert upper.verdict == "reproduced"


def test_a_number_on_a_look_alike_is_not_compared_with_the_papers():
    """Whatever it is; comparisons between methods are made as ever."""
    runs = [
        *_seeds("DNN-L2", 0.7440, look_alike=True),
        *_seeds("L2-Selective", 0.99, capacity=1.0, look_alike=True),
    ]
    evidence = _evidence(figure4=runs)
    for method in ("DNN-L2", "L2-Selective"):
        assert _found(evidence, "figure4", f"AUROC of {method}").verdict == "not comparable"
    assert _found(evidence, "figure4", "AUROC of DEN-Dynamic").verdict == "not measured"
    assert _found(evidence, "figure4", "capacity of L2-Selective").verdict == "reproduced"
    assert _found(evidence, "figure4", "selective retraining is above").verdict == "reproduced"
    assert "2 not comparable" in page(findings(evidence), evidence, [])


def test_drift():
    runs = [
        *_seeds("DNN-L2", 0.80, lost=0.1),
        *_seeds("DNN-EWC", 0.82, lost=0.05),
        *_seeds("DNN-Progressive", 0.86),
        *_seeds("DEN-No-Stamp", 0.89, lost=0.01),
        *_seeds("DEN", 0.90),
    ]
    evidence = _evidence(figure5=runs)
    assert _found(evidence, "figure5", "DEN loses nothing").verdict == "reproduced"
    little = _found(evidence, "figure5", "DEN without timestamps loses a little")
    assert (little.ours, little.verdict) == (pytest.approx(1.0), "reproduced")
    assert _found(evidence, "figure5", "L2 holds task 1").verdict == "not reproduced"
    assert _found(evidence, "figure5", "EWC is above L2").ours == pytest.approx(2.0)


def test_the_page_is_made_from_the_summary_and_has_every_line_of_it():
    evidence = _evidence(figure3_variation=[*_seeds("DEN", 0.9), *_seeds("DNN-STL", 0.91)])
    found = findings(evidence)
    text = write_summary(found)
    assert read_summary(text) == found
    assert set(msgspec.json.decode(text)[0]) == {
        "claim",
        "data",
        "paper",
        "ours",
        "stderr",
        "seeds",
        "verdict",
        "command",
    }
    shown = page(found, evidence, ["results/figures/figure3.png"])
    for each in found:
        assert each.claim in shown
        assert each.command in shown
    assert "**not reproduced**" in shown
    assert "![figure3](results/figures/figure3.png)" in shown
    assert "| DEN | 0.9000 ± 0.0007 | 0.00 | 1.000 | 1,000 | 10 | 5 |" in shown


def test_all_methods_on_all_data_at_a_glance():
    evidence = _evidence(
        figure3_variation=[*_seeds("DEN", 0.9, capacity=1.5), *measured("DNN-STL", [0.91])],
        permuted=_seeds("DEN", 0.99, capacity=1.25),
        figure4=_seeds("DNN-L1", 0.8),
    )
    text = page(findings(evidence), evidence, [])
    glance = text[text.index("## At a glance") : text.index("## data of")]
    assert "| | data of figure3-variation | data of permuted |" in glance
    assert "| DEN | 0.9000 ± 0.0007 (1.50; 5) | 0.9900 ± 0.0007 (1.25; 5) |" in glance
    assert "| DNN-STL | 0.9100 (1.00; 1) | – |" in glance
    assert "DNN-L1" not in glance
