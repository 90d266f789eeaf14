"""Modules that are not traced: heads, statistics and patches of weights."""

import threading

import pytest
import torch
from torch import nn

from builders import BUDGET, answers, contents, quick, random, same
from lifelong import DEN, Settings, Task, adapt
from lifelong.learners.baselines.fisher import fisher
from lifelong.learners.registry import METHODS
from lifelong.networks.growing import first_network
from lifelong.networks.initial import uniform
from lifelong.networks.layout import HEAD, NetworkError, logits, trainable
from lifelong.persistence.manifest import ModelFileError
from lifelong.tasks.examples import TensorExamples
from lifelong.tasks.kinds import Kind
from lifelong.training.budget import Budget, SettingError


class Odd(nn.Module):
    """Branches on its values, so that it cannot be traced."""

    def __init__(self, units=6):
        super().__init__()
        self.stem, self.norm = nn.Linear(5, units), nn.BatchNorm1d(units)
        self.low, self.high = nn.Linear(units, 4), nn.Linear(units, 4)
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(4, 3)
        self.register_buffer("shift", torch.full((4,), 0.5))

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = self.low(x) if x.mean() > 0.3 else self.high(x)
        return self.fc(self.drop(torch.relu(x + self.shift)))


def odd(seed=0, units=6):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Odd(units)


def inputs(rows, seed=0):
    return torch.randn(rows, 5, generator=random(seed))


def task(number, rows=24):
    x = inputs(rows, number)
    y = (x @ torch.randn(5, 3, generator=random(number + 100))).argmax(dim=1)
    return Task(f"task {number}", (x, y), (x, y), kind="classes", outputs=3)


def test_it_computes_what_the_module_computes():
    module, x = odd(), inputs(6, 1)
    adapted = adapt(module, x)
    assert module.training
    module.eval()
    with torch.no_grad():
        features = adapted.features(adapted.start, x)
        torch.testing.assert_close(module.fc(features), module(x))
    assert adapted.layout.groups == {}
    assert set(adapted.layout.task_owned) == {*HEAD, "norm.running_mean", "norm.running_var"}
    assert list(adapted.constants) == ["shift"]
    assert "no units grow" in adapted.report()
    assert adapted.multiply_adds({HEAD[0]: torch.zeros(3, 4)}) == 5 * 6 + 6 * 4 + 3 * 4


def test_dropout_draws_from_the_generator_and_statistics_are_updated_in_place():
    adapted, x = adapt(odd(), inputs(6)), inputs(6)
    state = torch.get_rng_state()

    def trained(seed):
        tensors = {n: t.clone() for n, t in adapted.start.items()}
        return adapted.features(tensors, x, random(seed)), tensors

    assert torch.equal(trained(1)[0], trained(1)[0])
    assert not torch.equal(trained(1)[0], trained(2)[0])
    assert torch.equal(torch.get_rng_state(), state)
    moved = {n for n, t in trained(1)[1].items() if not torch.equal(t, adapted.start[n])}
    assert moved == {"norm.running_mean", "norm.running_var"}


@pytest.mark.parametrize("split", ["weights", "auto"])
def test_den_patches_a_module_and_forgets_nothing(split, tmp_path):
    learner = DEN(adapt(odd(), inputs(4)), quick(split=split, keep=0.5), seed=1)
    x = inputs(7, 50)
    learner.learn(task(1))
    before = answers(learner, x)
    learner.learn(task(2))
    after = answers(learner, x)
    assert torch.equal(after["task 1"], before["task 1"])
    learner.save(tmp_path)
    again = DEN.load(tmp_path, module=odd(seed=9))
    assert same(answers(again, x), after)
    for one in (learner, again):
        one.learn(task(3))
    assert same(contents(again), contents(learner))
    assert torch.equal(answers(learner, x)["task 2"], after["task 2"])


def test_a_patch_holds_what_the_task_may_keep():
    learner = DEN(adapt(odd(), inputs(4)), quick(split="weights", keep=0.1))
    learner.learn(task(1))
    learner.learn(task(2))
    changed = sum(len(patch) for patch in learner.network.tasks[1].patches.values())
    base = sum(
        t.numel() for n, t in learner.network.architecture.start.items() if "running" not in n
    )
    assert 0 < changed <= round(0.1 * base)


@pytest.mark.parametrize("method", ["DNN", "DNN-EWC", "SI", "DNN-STL", "DNN-Progressive"])
def test_rivals_take_a_module_that_was_not_traced(method):
    module = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    learner = METHODS[method].make(adapt(module, inputs(4), head="3"), budget=BUDGET)
    learner.learn(task(1))
    before = answers(learner, inputs(5))["task 1"]
    learner.learn(task(2))
    forgets = not torch.equal(answers(learner, inputs(5))["task 1"], before)
    assert forgets == (method not in ("DNN-STL", "DNN-Progressive"))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.fc = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.gru(x[..., None])[0][:, -1])


@pytest.mark.parametrize("make", [odd, Recurrent])  # neither takes rows by vmap
def test_fisher_information_is_formed_row_by_row_where_it_must(make):
    adapted, x, y = adapt(make(), inputs(4)), inputs(6, 1), torch.arange(6) % 3
    network = first_network(adapted, {}, 3, uniform(random(1)))
    rows = TensorExamples(x, y)
    found = fisher(network, Kind.CLASSES, rows, labels="true", examples=None, generator=random(0))
    want = {name: torch.zeros_like(found[name]) for name in trainable(adapted.layout.tensors)}
    for one, label in zip(x, y, strict=True):
        leaves = {n: t.clone().requires_grad_(n in want) for n, t in network.tensors.items()}
        outputs = logits(adapted, leaves, one[None])
        torch.nn.functional.cross_entropy(outputs, label[None]).backward()
        for name in want:
            slope = leaves[name].grad
            want[name] += 0 if slope is None else slope.square() / len(x)
    for name, expected in want.items():
        torch.testing.assert_close(found[name], expected)


@pytest.mark.parametrize(
    "method",
    [
        *("DEN-auto", "DEN-W", "LPF", "LwF", "ER", "PackNet", "Piggyback", "SupSup", "WSN"),
        *("LoRA", "APD"),
    ],
)
def test_the_family_takes_a_module_that_was_not_traced(method, tmp_path):
    learner = METHODS[method].make(adapt(odd(), inputs(4)), budget=BUDGET)
    learner.learn(task(1))
    before = answers(learner, inputs(5))["task 1"]
    learner.learn(task(2))
    forgets = not torch.equal(answers(learner, inputs(5))["task 1"], before)
    assert not forgets or METHODS[method].forgets
    learner.save(tmp_path)
    again = METHODS[method].learner.load(tmp_path, module=odd(seed=9))
    assert same(answers(again, inputs(5)), answers(learner, inputs(5)))


def test_hat_needs_units():
    with pytest.raises(NetworkError, match="by grow instead of adapt"):
        METHODS["HAT"].make(adapt(odd(), inputs(4)), budget=BUDGET)


def test_gpm_needs_a_module_whose_calls_are_known():
    with pytest.raises(NetworkError, match=r"not tell \(Adapted\): .* Use grow instead of adapt"):
        METHODS["GPM"].make(adapt(odd(), inputs(4)), budget=BUDGET)


def test_frozen_parts_never_change():
    module = odd()
    adapted = adapt(module, inputs(4), frozen=["stem", "norm"])
    assert {"stem.weight", "norm.running_mean"} <= set(adapted.constants)
    before = {n: t.clone() for n, t in adapted.constants.items()}
    learner = DEN(adapted, quick(split="weights", keep=0.5))
    learner.learn(task(1))
    learner.learn(task(2))
    assert same(dict(adapted.constants), before)
    assert not any(name.startswith(("stem", "norm")) for name in learner.network.shared)


def test_several_threads_may_predict():
    adapted = adapt(odd(), inputs(4))
    tensors = [{n: t + k for n, t in adapted.start.items()} for k in range(4)]
    want = [adapted.features(t, inputs(3)) for t in tensors]
    wrong = []

    def predict(k):
        for _ in range(40):
            if not torch.equal(adapted.features(tensors[k], inputs(3)), want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=predict, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_file_holds_no_code_and_asks_for_the_module(tmp_path):
    learner = DEN(adapt(odd(), inputs(4)), quick(split="weights"))
    learner.learn(task(1))
    learner.save(tmp_path)
    with pytest.raises(ModelFileError, match=r"give load\(..., module=Odd\(...\)\)"):
        DEN.load(tmp_path)
    with pytest.raises(ModelFileError, match="other tensors than the Odd that was saved"):
        DEN.load(tmp_path, module=odd(units=7))


class _Softmax(Odd):
    def forward(self, x):
        return super().forward(x).softmax(1)


@pytest.mark.parametrize(
    ("module", "head", "told"),
    [
        (_Softmax, "fc", "must return the outputs of its head 'fc' as they are"),
        (Odd, "nothing", "head='nothing' is no part of the module"),
        (Odd, "norm", "must be a Linear layer, not a BatchNorm1d"),
        (Odd, "stem", "cannot be called with the example, without its head"),
    ],
)
def test_what_cannot_be_adapted_is_refused(module, head, told):
    with pytest.raises(NetworkError, match=told):
        adapt(module(), inputs(4), head=head)


def test_an_average_over_all_batches_is_refused():
    module = odd()
    module.norm.momentum = None
    with pytest.raises(NetworkError, match="norm averages over all batches"):
        adapt(module, inputs(4))


class Average(nn.Module):
    """Subtracts a running average of its own making, in place or by a new tensor."""

    def __init__(self, in_place=True):
        super().__init__()
        self.stem, self.fc, self.in_place = nn.Linear(5, 6), nn.Linear(6, 3), in_place
        self.register_buffer("average", torch.zeros(6))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        x = self.stem(x)
        if self.training:
            new = 0.9 * self.average + 0.1 * x.detach().mean(0)
            self.average = self.average.copy_(new) if self.in_place else new
            self.calls += 1
        return self.fc(torch.relu(x - self.average))


def _spectral():
    stem = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 6))
    return nn.Sequential(stem, nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.parametrize("seed", [0, 10, 44])
def test_what_a_module_writes_is_found_where_it_has_converged(seed):
    """Of some initial weights the next step of spectral_norm's iteration changes no bit."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = _spectral()
        adapted = adapt(module, torch.randn(4, 5), head="2")
    written = {f"0.parametrizations.weight.0.{name}" for name in ("_u", "_v")}
    assert set(adapted.layout.task_owned) == {*HEAD, *written}


@pytest.mark.parametrize(
    ("make", "head", "statistics"),
    [
        (Average, "fc", {"average"}),
        (lambda: Average(in_place=False), "fc", {"average"}),
        (_spectral, "2", {f"0.parametrizations.weight.0.{name}" for name in ("_u", "_v")}),
    ],
)
def test_what_a_module_writes_in_training_belongs_to_the_task(make, head, statistics, tmp_path):
    adapted = adapt(make(), inputs(4), head=head)
    assert set(adapted.layout.task_owned) == {*HEAD, *statistics}
    before = {n: t.clone() for n, t in adapted.constants.items()}
    learner = METHODS["DEN-auto"].make(adapted, budget=BUDGET)
    learner.learn(task(1))
    first = answers(learner, inputs(5))["task 1"]
    learner.learn(task(2))
    assert torch.equal(answers(learner, inputs(5))["task 1"], first)
    assert same(dict(adapted.constants), before)
    own = [one.private for one in learner.network.tasks]
    assert all(not torch.equal(own[0][name], adapted.start[name]) for name in statistics)
    learner.save(tmp_path)
    again = DEN.load(tmp_path, module=make())
    assert same(answers(again, inputs(5)), answers(learner, inputs(5)))


@pytest.mark.parametrize("method", ["DNN-Progressive", "DNN-STL"])
def test_each_new_network_starts_from_the_modules_values(method):
    adapted = adapt(_spectral(), inputs(4), head="2")  # at statistics of zero it computes nothing
    still = Budget(steps=1, learning_rate=1e-9)
    learner = METHODS[method].make(adapted, budget=still)
    for number in (1, 2):
        learner.learn(task(number))
        own = learner.network.tasks[-1].private
        weight = "0.parametrizations.weight.original"
        torch.testing.assert_close(own[weight], adapted.start[weight])


class Counting(nn.Module):
    """Writes into a buffer whenever it is called."""

    def __init__(self):
        super().__init__()
        self.stem, self.fc = nn.Linear(5, 6), nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(6))

    def forward(self, x):
        self.calls += 1
        return self.fc(torch.relu(self.stem(x)) * self.calls)


def test_a_module_that_writes_in_evaluation_mode_is_refused():
    with pytest.raises(NetworkError, match="writes into calls in evaluation mode"):
        adapt(Counting(), inputs(4))


class Beside(nn.Module):
    """Returns something else beside its head, in training mode only."""

    def __init__(self):
        super().__init__()
        self.stem, self.fc = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.stem(x)
        return (self.fc(x), x) if self.training else self.fc(x)


def test_a_module_with_more_outputs_in_training_mode_is_refused():
    with pytest.raises(NetworkError, match="in training mode too, one tensor"):
        adapt(Beside(), inputs(4))


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_a_module_that_cannot_be_copied_is_refused_with_the_reason():
    module = nn.Sequential(nn.utils.weight_norm(nn.Linear(5, 6)), nn.Linear(6, 3))
    with pytest.raises(NetworkError, match=r"cannot be copied.*parametrizations\.weight_norm can"):
        adapt(module, inputs(4), head="1")


class Tied(nn.Module):
    """A weight under two names, and a head that is the embedding."""

    def __init__(self, head_first=False):
        super().__init__()
        if head_first:
            self.fc = nn.Linear(6, 9, bias=False)
        self.embed, self.one, self.two = nn.Embedding(9, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.two.weight = self.one.weight
        if head_first:
            self.embed.weight = self.fc.weight
        else:
            self.fc = nn.Linear(6, 9, bias=False)
            self.fc.weight = self.embed.weight

    def forward(self, x):
        return self.fc(self.two(torch.relu(self.one(self.embed(x)))).mean(1))


@pytest.mark.parametrize("head_first", [False, True])
@pytest.mark.parametrize("frozen", [(), ("two",)])
def test_tied_weights_stay_one_tensor(head_first, frozen, tmp_path):
    x = torch.randint(9, (24, 5), generator=random(0))
    adapted = adapt(Tied(head_first), x, frozen=frozen)
    kept = {"two.weight", "two.bias"} if frozen else set()
    assert set(adapted.constants) == kept
    weights = {"embed.weight", "one.bias"} | (set() if frozen else {"one.weight", "two.bias"})
    assert set(adapted.start) == weights
    learner = METHODS["DEN-auto"].make(adapted, budget=BUDGET)
    for number in (0, 1):
        y = (x[:, number] > 4).long()
        learner.learn(Task(f"task {number}", (x, y), (x, y)))
    learner.save(tmp_path)
    again = DEN.load(tmp_path, module=Tied(head_first))
    assert same(answers(again, x), answers(learner, x))


def test_splitting_units_needs_units():
    with pytest.raises(SettingError, match="use Settings"):
        DEN(adapt(odd(), inputs(4)), Settings())
