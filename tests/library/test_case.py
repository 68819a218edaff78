"""Cases: complete, repeatable, and with peers that compute the same."""

from typing import get_args

import numpy as np
import pytest

from tcdsl import library
from tcdsl.library import Case, source_for, texts

ALL = [pytest.param(case, id=case.name) for case in library.cases()]

# What the compiler is to be good at, by family.
REDUCTIONS = {
    "all_sum", "all_max", "all_min", "all_prod", "all_and", "row_sum", "row_max", "column_sum",
    "middle_sum", "channel_sum", "channel_sum_nhwc", "row_argmax", "dot", "fused_column_sum",
    "fused_sum_first", "fused_sum_first_two", "two_branches",
}  # fmt: skip
GRAPHS = {
    "softmax", "log_softmax", "masked_softmax", "softmax_backward", "layernorm", "rmsnorm",
    "layernorm_backward", "bias_gelu_residual_layernorm", "batchnorm", "batchnorm_nhwc",
    "batchnorm_relu", "batchnorm_gelu", "batchnorm_backward", "batchnorm_backward_nhwc",
    "cross_entropy", "mse", "l2_loss", "grad_norm", "adam", "lamb", "gelu_backward", "four_graphs",
    "eight_graphs", "power_broadcast", "power_chain",
}  # fmt: skip
CONTRACTIONS = {
    "tmm", "tmm_int8", "tbmm", "tmv", "lut1", "lut2", "c3", "mlp1", "mlp3", "group_convolution",
    "conv3x3_bias_relu", "conv3x3_bias_relu_nhwc", "conv3x3_bn_relu", "conv3x3_bn_relu_pool",
    "conv3x3_stride2", "conv3x3_dilation2", "conv1x1_bias_relu_nhwc", "separable_conv",
    "conv3x3_backward_data", "conv3x3_backward_weights", "kronecker3", "tensordot",
    "matmul_transposed", "wavenet",
}  # fmt: skip
NETWORKS = {
    "bert_glue", "decoder_glue", "lstm_steps", "dien_gru", "lamb_many", "adam_clip", "unet_norms",
    "unet_norms_nhwc", "smoothed_loss", "vae_loss", "focal_loss", "moe_gate", "harris", "unsharp",
    "shallow_water", "batch_metrics", "kmeans_step",
}  # fmt: skip
STENCILS = {"harris", "unsharp"}  # that have no result for fewer elements


def test_the_catalogue_is_whole() -> None:
    families = {
        family: {case.name for case in library.cases(family)} for family in get_args(library.Family)
    }
    assert families["reduction"] >= REDUCTIONS
    assert families["graph"] >= GRAPHS
    assert families["contraction"] >= CONTRACTIONS
    assert families["network"] >= NETWORKS
    assert sum(map(len, families.values())) == len(library.cases())


def test_every_def_of_every_file_is_a_case_or_called_by_one() -> None:
    files = {case.file for case in library.cases()}
    helpers = {
        "row_softmax", "row_mean", "column_moments", "residual_norm", "root_norm", "rotated",
        "lstm_step", "augru_step", "lamb_step", "square_sum", "adam_step", "group_block",
    }  # fmt: skip
    defs = {name for stem in files for name in texts.defs(stem)}
    assert defs == {case.def_name for case in library.cases()} | helpers


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(
        KeyError, match=r"no program 'sofmax'; did you mean 'softmax'\? there are .*softmax"
    ):
        library.case("sofmax")


def test_load_gives_the_text_of_one_program() -> None:
    assert library.load("softmax").count("def ") == 1
    assert library.load("softmax") == library.case("softmax").source


@pytest.mark.parametrize("case", ALL)
def test_sizes_name_every_symbol_and_small_ones_include_one(case: Case) -> None:
    symbols = {dim for param in case.params for dim in param.dims if not dim.isdigit()}
    for sizes in case.sizes + case.small_sizes:
        assert set(sizes) == symbols
    assert not any(case.is_large(sizes) for sizes in case.small_sizes)
    least = 5 if case.name in STENCILS else 2
    assert any(max(sizes.values()) <= least for sizes in case.small_sizes)


@pytest.mark.parametrize("case", ALL)
def test_a_cpu_has_a_size_of_every_case(case: Case) -> None:
    assert case.cpu_sizes


def test_large_sizes_are_those_that_two_cores_cannot_do() -> None:
    tmm = library.case("tmm")
    assert tmm.flops({"M": 2, "N": 3, "K": 5}) == 60
    assert tmm.is_large({"M": 8192, "N": 8192, "K": 8192})
    assert not tmm.is_large({"M": 1024, "N": 1024, "K": 1024})
    assert library.case("all_sum").is_large({"N": 2**28})


@pytest.mark.parametrize("case", ALL)
def test_inputs_are_repeatable_and_in_the_declared_types(case: Case) -> None:
    for dtype in case.dtypes:
        first, second = (
            case.make_inputs(case.small_sizes[-1], np.random.default_rng(3), dtype)
            for _ in range(2)
        )
        assert list(first) == [param.name for param in case.params]
        for name, array in first.items():
            np.testing.assert_array_equal(array, second[name])
            assert array.shape == case.input_shapes(case.small_sizes[-1])[name]


@pytest.mark.parametrize("case", ALL)
def test_the_numpy_peer_computes_the_reference(case: Case) -> None:
    for sizes in case.small_sizes:
        inputs = case.make_inputs(sizes, np.random.default_rng(3), case.dtypes[0])
        for wanted, found in zip(case.reference(inputs), case.numpy_peer(inputs), strict=True):
            assert (wanted.shape, wanted.dtype) == (found.shape, found.dtype)
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_the_reference_leaves_its_inputs_as_they_were() -> None:
    case = library.case("cross_entropy_backward")
    inputs = case.make_inputs({"B": 3, "V": 5}, np.random.default_rng(3), "float64")
    before = {name: array.copy() for name, array in inputs.items()}
    case.reference(inputs)
    case.numpy_peer(inputs)
    for name, array in before.items():
        np.testing.assert_array_equal(inputs[name], array)


def test_sums_of_float16_overflow_float16() -> None:
    case = library.case("row_sum_float32")
    inputs = case.make_inputs({"M": 1, "N": 500}, np.random.default_rng(3), "float16")
    (sums,) = case.reference(inputs)
    assert sums.dtype == np.float32 and sums[0] > np.finfo(np.float16).max


def test_the_source_for_a_half_type_keeps_scalars_in_float32() -> None:
    text = source_for(library.case("adam"), "bfloat16")
    assert "bfloat16(N) p" in text and "float32 beta2" in text
