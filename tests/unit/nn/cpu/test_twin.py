"""A twin is made once, follows every change of what it was made from, and is nobody's parameter."""

import copy
import pickle

import torch
from torch import Tensor, nn

from qkv.nn.cpu.precision import Twins, store_by_columns


def make() -> nn.ModuleList:
    return nn.ModuleList([nn.Linear(6, 10), nn.Sequential(nn.LayerNorm(10), nn.Linear(10, 6)), nn.LayerNorm(6)])


def computed(modules: nn.ModuleList, x: Tensor) -> Tensor:
    for module in modules:
        x = module(x)
    return x


def test_linear_layers_are_replaced_and_the_rest_is_shared() -> None:
    modules = make()
    names: list[str] = []

    def replaced(layer: nn.Linear, name: str) -> nn.Module:
        names.append(name)
        return nn.Identity() if layer.out_features == 6 else store_by_columns(layer)

    twin = Twins(replaced).of(modules)
    assert names == ["0", "1"], "each with what it is called where it stands"
    kinds = [type(module).__name__ for module in twin.modules()]
    assert kinds == ["ModuleList", "Linear", "Sequential", "LayerNorm", "Identity", "LayerNorm"]
    assert sum(isinstance(module, nn.Linear) for module in modules.modules()) == 2
    assert twin[2] is not modules[2] and twin[2].weight is modules[2].weight
    assert twin[0].weight is not modules[0].weight and twin[0].bias is modules[0].bias


def test_it_is_made_once_and_follows_every_change() -> None:
    torch.manual_seed(0)
    modules = make()
    twins, x = Twins(store_by_columns), torch.randn(4, 6)
    twin = twins.of(modules)
    assert twins.of(modules) is twin is twins.held
    assert twins.of(nn.ModuleList(list(modules))) is twin  # another list of the same

    def changed() -> bool:
        found = twins.of(modules)
        assert torch.allclose(computed(found, x), computed(modules, x), atol=1e-3)
        return found is not twin

    assert not changed()
    optimizer = torch.optim.AdamW(modules.parameters(), lr=0.1)
    computed(modules, x).square().sum().backward()
    weight = next(modules.parameters())
    for step in (
        optimizer.step,
        lambda: weight.detach().add_(1),
        lambda: modules.load_state_dict({name: one + 1 for name, one in modules.state_dict().items()}),
        lambda: modules.load_state_dict({name: one + 1 for name, one in modules.state_dict().items()}, assign=True),
        lambda: setattr(next(modules.parameters()), "data", torch.randn(10, 6)),
    ):
        step()
        assert changed()
        twin = twins.of(modules)
        assert not changed()
    twins.forget()
    assert twins.held is None


def test_a_copy_begins_without() -> None:
    modules = make()
    twins = Twins(store_by_columns)
    twin = twins.of(modules)
    for other in (copy.deepcopy(twins), pickle.loads(pickle.dumps(twins))):
        assert other.held is None
        assert other.of(modules) is not twin
