"""The paper's variants of DEN, each as `Settings`."""

from lifelong.learners.den.settings import Settings


def paper_settings(k: int = 10, sigma: float = 0.1, lam: float = 1e-4) -> Settings:
    """The paper's choices wherever the defaults depart from it (`docs/deviations.md`).

    The paper does not state k, sigma and lambda.
    """
    return Settings(
        initial_width=1.0,
        k=k,
        max_new_units=None,
        min_improvement=0.0,
        sigma=sigma,
        drift="absolute",
        below_sigma="keep",
        lam=lam,
        distillation=0.0,
        shrink=1.0,
        perturb=0.0,
    )


def by_weights(keep: float = 0.04) -> Settings:
    """DEN-W: Algorithm 4 by weights instead of units."""
    return Settings(initial_width=1.0, split="weights", keep=keep)


def by_need(price: float = 0.15) -> Settings:
    """DEN-auto: each task stores what its gain in validation loss is worth."""
    return Settings(initial_width=1.0, split="auto", price=price)


def selective_only(lam: float = 1e-4) -> Settings:
    """DNN-L2-Selective: selective retraining with the anchor, no expansion, no split."""
    return Settings(initial_width=1.0, expand=False, split=False, lam=lam)


def constant(k: int) -> Settings:
    """DEN-Constant: k units per layer for every task, without group penalty and split."""
    return Settings(
        initial_width=1.0,
        k=k,
        max_new_units=None,
        gamma=0.0,
        tau=0.0,
        min_improvement=0.0,
        prune=False,
        split=False,
    )


def dynamic(k: int = 20) -> Settings:
    """DEN-Dynamic: selective retraining and expansion, without split."""
    return Settings(initial_width=1.0, k=k, max_new_units=None, min_improvement=0.0, split=False)


def no_stamp() -> Settings:
    """DEN-No-Stamp: every task is served by the whole network."""
    return Settings(timestamps=False)


def newcomers_only() -> Settings:
    """No retraining: the old network is frozen, and each task may add as much as DEN does.

    Not in the paper; it shows what retraining and split add. The zero head selects no units.
    """
    return Settings(head_l1=1.0, k=0.12, min_improvement=0.0)
