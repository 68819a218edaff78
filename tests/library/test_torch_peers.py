"""The PyTorch peers compute what the references do: neither knows the other."""

import numpy as np
import pytest

from tcdsl import library
from tcdsl.library import Case
from tcdsl.library.draws import Sizes

pytest.importorskip("torch")
from tcdsl.library import torch_peers

# PyTorch refuses to reduce nothing to a largest or smallest element, and to pool nothing.
REFUSED = ("max", "min", "pool", "fan_out")


def is_refused(case: Case, sizes: Sizes) -> bool:
    is_tiny = min(sizes.values()) == 0 or ("pool" in case.name and sizes["H"] < 2)
    return is_tiny and any(word in case.name for word in REFUSED)


@pytest.mark.filterwarnings("ignore:var_mean.*degrees of freedom:UserWarning")  # rows of one
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in library.cases()])
def test_the_peer_computes_the_reference(case: Case) -> None:
    for sizes in case.small_sizes:
        if is_refused(case, sizes):
            continue
        inputs = case.make_inputs(sizes, np.random.default_rng(11), case.dtypes[0])
        outputs = case.torch(torch_peers.tensors(inputs))
        for wanted, found in zip(case.reference(inputs), outputs, strict=True):
            np.testing.assert_allclose(torch_peers.array(found), wanted, rtol=2e-4, atol=2e-5)
            assert torch_peers.array(found).shape == wanted.shape


def test_tensors_carry_the_bits_of_bfloat16_and_scalars_become_numbers() -> None:
    inputs = library.case("adam").make_inputs({"N": 9}, np.random.default_rng(2), "bfloat16")
    tensors = torch_peers.tensors(inputs)
    assert isinstance(tensors["rate"], float)
    np.testing.assert_array_equal(torch_peers.array(tensors["p"]), inputs["p"].astype(np.float32))
