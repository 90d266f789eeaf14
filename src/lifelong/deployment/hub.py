"""Models on the Hugging Face Hub, by its own library.

What comes from the Hub is not trusted: only the files of a model are downloaded, and they are read
as any saved model is.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, final

import torch

from lifelong.deployment.answering import load_model_or_estimator
from lifelong.deployment.card import MADE, Scores, card_text
from lifelong.extras import require_extra
from lifelong.learners.base import AnyLearner, Learner
from lifelong.persistence.files import LOCK
from lifelong.persistence.manifest import MANIFEST, TENSOR_FILES

if TYPE_CHECKING:
    from lifelong.estimator.base import LifelongEstimator

require_extra("huggingface_hub", extra="hub")

from huggingface_hub import (  # noqa: E402
    ModelCard,
    ModelCardData,
    ModelHubMixin,
    snapshot_download,
)

MODEL_FILES = (MANIFEST, *TENSOR_FILES)
CARD = "README.md"
_TAGS = ("continual-learning", "lifelong-learning")


def save_pretrained(
    model: "AnyLearner | LifelongEstimator",
    directory: str | Path,
    *,
    scores: Scores | None = None,
    command: str = "",
    overwrite: bool = False,
) -> None:
    """Save a learner or an estimator with a model card beside it.

    Args:
        scores: by task and metric, for the card.
        command: that made the model, for the card.
        overwrite: as in `Learner.save`. A card that somebody has written is kept in any case.
    """
    place = Path(directory)
    _drop_own_card(place)
    about = {"scores": scores, "command": command, "name": place.resolve().name}
    _OnHub(model, overwrite).save_pretrained(place, model_card_kwargs=about)


def from_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    device: str | torch.device = "cpu",
) -> "AnyLearner | LifelongEstimator":
    """Load a learner or an estimator from the Hub, by its name, or from a directory."""
    return _OnHub._from_pretrained(
        model_id=str(name),
        revision=revision,
        cache_dir=cache_dir,
        force_download=force_download,
        local_files_only=local_files_only,
        token=token,
        device=device,
    ).model


def push_to_hub(
    model: "AnyLearner | LifelongEstimator",
    name: str,
    *,
    scores: Scores | None = None,
    command: str = "",
    commit_message: str = "",
    private: bool | None = None,
    token: str | None = None,
    branch: str | None = None,
    create_pr: bool | None = None,
) -> str:
    """Upload a model with its card in one commit; the address of the commit.

    The tensors of the model that was there before are deleted in the same commit.
    """
    about = {"scores": scores, "command": command, "name": name}
    made: str = _OnHub(model, overwrite=True).push_to_hub(
        name,
        commit_message=commit_message or f"{model.method}, {len(model.tasks)} tasks",
        private=private,
        token=token,
        branch=branch,
        create_pr=create_pr,
        ignore_patterns=[LOCK],
        delete_patterns=list(TENSOR_FILES),
        model_card_kwargs=about,
    )
    return made


@final
class _OnHub(ModelHubMixin, library_name="lifelong", tags=list(_TAGS)):
    """A learner or an estimator as the Hub's library wants it."""

    def __init__(self, model: "AnyLearner | LifelongEstimator", overwrite: bool = False) -> None:
        self.model = model
        self._overwrite = overwrite
        self._hub_mixin_config = None  # the manifest says it all

    def _save_pretrained(self, save_directory: Path) -> None:
        self.model.save(save_directory, overwrite=self._overwrite)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **model_kwargs: Any,
    ) -> "_OnHub":
        if Path(model_id).is_dir():
            return cls(load_model_or_estimator(model_id, **model_kwargs))
        cached = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=list(MODEL_FILES),
        )
        # The cache is made of links, which are refused in the directory of a model.
        with TemporaryDirectory() as copied:
            for pattern in MODEL_FILES:
                for file in Path(cached).glob(pattern):
                    shutil.copyfile(file, Path(copied) / file.name)
            return cls(load_model_or_estimator(copied, **model_kwargs))

    def generate_model_card(self, *_args: Any, **about: Any) -> ModelCard:
        learner = self.model if isinstance(self.model, Learner) else self.model.learner_
        data = ModelCardData(library_name="lifelong", tags=[*_TAGS, learner.method.lower()])
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{card_text(learner, **about)}")


def _drop_own_card(directory: Path) -> None:
    """The Hub's library keeps a card that is there; one of ours is out of date."""
    card = directory / CARD
    if card.is_file() and MADE in card.read_text(encoding="utf-8", errors="replace"):
        card.unlink()
