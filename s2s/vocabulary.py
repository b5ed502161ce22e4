"""What PyTorch's and Python's names do, as far as s2s has to know.

A name that is missing is taken for the careful case: opaque, of unknown type, sharing memory.
"""

from __future__ import annotations

import ast
import sys

__all__ = [
    "BOOLEAN",
    "DTYPES",
    "EXTREMES",
    "FLAGS",
    "FLAT",
    "INTEGER",
    "IN_PLACE",
    "LIBRARIES",
    "MANY",
    "LIKE",
    "METADATA",
    "NONLINEAR",
    "PAIRS",
    "PLAIN",
    "POINTWISE",
    "PURE_BUILTINS",
    "RANDOM",
    "READS_ONLY",
    "REDUCING",
    "SCOPE_TRICKS",
    "SCRIPT_BUILTINS",
    "SHARING",
    "SIZES",
    "STATISTICS",
    "TENSOR_ATTRIBUTES",
    "TENSOR_LISTS",
    "VIEWS",
]

# modules that hold no tensors of the user's, and whose functions read none
LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "s2s"})

# methods that write arithmetic into the tensor that they return
IN_PLACE = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}

# draw random numbers: the same call gives another value
RANDOM = frozenset(
    """
    _cudnn_attention_forward _cudnn_rnn _efficient_attention_forward _flash_attention_forward
    _flash_attention_forward_no_dropout_inplace _fused_dropout _sample_dirichlet
    _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_fused_attention_overrideable _standard_gamma alpha_dropout
    alpha_dropout_ bernoulli bernoulli_ binomial cauchy cauchy_ dropout dropout1d dropout2d
    dropout3d dropout_ exponential exponential_ feature_alpha_dropout feature_alpha_dropout_
    feature_dropout feature_dropout_ fractional_max_pool2d fractional_max_pool3d geometric
    geometric_ gru gumbel_softmax log_normal log_normal_ lstm miopen_rnn
    multi_head_attention_forward multinomial native_dropout normal normal_ normal_functional
    poisson rand rand_like randint randint_like randn randn_like random random_ randperm
    rnn_relu rnn_tanh rrelu rrelu_ rrelu_with_noise rrelu_with_noise_
    rrelu_with_noise_functional rsample sample scaled_dot_product_attention uniform uniform_
    """.split()
)

# update running statistics that they are given
STATISTICS = frozenset(
    """
    _batch_norm_with_update _native_batch_norm_legit batch_norm batch_norm_gather_stats
    batch_norm_gather_stats_with_counts batch_norm_update_stats cudnn_batch_norm instance_norm
    miopen_batch_norm native_batch_norm
    """.split()
)

# methods of strings, lists and dicts that change nothing
READS_ONLY = frozenset(
    """
    copy count endswith format get index items join keys lower replace split startswith strip
    upper values
    """.split()
)

# builtins that only compute
PURE_BUILTINS = frozenset(
    """
    abs all any bool callable complex dict divmod enumerate filter float frozenset getattr
    hasattr hash id int isinstance issubclass len list map max min pow range repr reversed round
    set slice sorted str sum tuple type zip
    """.split()
)

# results that carry no derivative: rounding, comparisons, counts, indices
FLAT = frozenset(
    """
    argmax argmin argsort bernoulli bool bucketize ceil detach dim empty_like eq floor full_like
    ge gt heaviside int isfinite isinf isinstance isnan item le len logical_and logical_not
    logical_or long lt multinomial ne new_empty new_full new_ones new_zeros numel ones_like
    rand_like randint_like randn_like round searchsorted sgn sign signbit size tolist trunc
    zeros_like
    """.split()
)

# may give back the memory of their argument: views, and casts that do nothing
SHARING = frozenset(
    """
    _grad_sum_to_size alias as_strided as_tensor atleast_1d atleast_2d bfloat16
    broadcast_tensors broadcast_to chunk conj contiguous copy cpu cuda detach diagonal double
    dropout expand expand_as expand_copy flatten float from_numpy get half hsplit imag
    lift_fresh list meshgrid moveaxis movedim narrow numpy permute pop positive ravel real
    rearrange reshape reshape_as resolve_conj select split split_with_sizes squeeze squeeze_
    sum_to_size swapaxes swapdims t tensor_split to transpose tuple type type_as unbind
    unflatten unfold unsqueeze view view_as view_as_complex view_as_real vsplit zip
    """.split()
)

# attributes that say something about a tensor and hold none of its values
METADATA = frozenset(
    """
    device dtype is_cuda layout ndim requires_grad shape
    """.split()
)

# types whose values are surely no tensors
PLAIN = frozenset(
    """
    None bool complex device dtype float int number object str
    """.split()
)

# give an int
SIZES = frozenset(
    """
    dim element_size get_device ndimension nelement numel storage_offset
    """.split()
)

# give a bool
FLAGS = frozenset(
    """
    is_complex is_contiguous is_floating_point is_pinned is_signed is_sparse
    """.split()
)

# give values and indices
PAIRS = frozenset(
    """
    adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
    adaptive_max_pool3d_with_indices cummax cummin frexp kthvalue max_pool1d_with_indices
    max_pool2d_with_indices max_pool3d_with_indices median mode nanmedian sort topk
    """.split()
)

# give several tensors
TENSOR_LISTS = frozenset(
    """
    atleast_1d broadcast_tensors chunk hsplit meshgrid nonzero_tuple split split_with_sizes
    tensor_split unbind unsafe_chunk vsplit
    """.split()
)

# give what the text does not tell: one tensor or a named tuple
MANY = frozenset(
    """
    aminmax eig eigh geqrf lstsq lu lu_factor max_pool2d_with_indices qr slogdet std_mean svd
    unique unique_consecutive var_mean
    """.split()
)

# give an integer tensor
INTEGER = frozenset(
    """
    argmax argmin argsort bucketize int long nonzero searchsorted
    """.split()
)

# give a mask
BOOLEAN = frozenset(
    """
    bool eq ge greater gt isclose isfinite isinf isnan le less logical_and logical_not
    logical_or lt ne signbit
    """.split()
)

# work on each element by itself: cheap to do again
POINTWISE = frozenset(
    """
    abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2
    arctanh asin asinh atan atan2 atanh bfloat16 bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor bool ceil celu clamp clamp_max clamp_min clip clone
    conj_physical copysign cos cosh deg2rad digamma div divide double elu eq erf erfc erfinv exp
    exp2 expit expm1 fix float floor floor_divide fmax fmin fmod frac full_like ge gelu greater
    greater_equal gt half hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e
    int isfinite isinf isnan isneginf isposinf ldexp le leaky_relu lerp less less_equal lgamma log
    log10 log1p log2 log_ndtr logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    logit logsigmoid long lt masked_fill maximum minimum mish mul multiply nan_to_num ndtr ndtri ne
    neg negative not_equal ones_like polygamma positive pow rad2deg reciprocal relu relu6
    remainder round rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink
    softsign special_entr sqrt square sub subtract tan tanh tanhshrink threshold to true_divide
    trunc type_as where xlog1py xlogy zeros_like
    """.split()
)

# fold dimensions away
REDUCING = frozenset(
    """
    all amax amin any argmax argmin count_nonzero logsumexp mean nanmean nansum norm prod std sum
    var vector_norm
    """.split()
)

# fold one dimension away where no second tensor is given
EXTREMES = frozenset("max median min mode nanmedian".split())

# the bytes of an element, by the names of dtypes and of the methods that cast to them
DTYPES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "cfloat", "complex64"), 8),
    **dict.fromkeys(("cdouble", "complex128"), 16),
}

# attributes that are tensors
TENSOR_ATTRIBUTES = frozenset(
    """
    H T data grad imag mH mT real
    """.split()
)

# methods and attributes that give a view
VIEWS = frozenset(
    """
    H T contiguous data detach diagonal expand expand_as flatten imag mH mT movedim narrow
    permute real reshape select squeeze swapaxes swapdims t to transpose unflatten unsqueeze
    view view_as
    """.split()
)

# builtins that see the scope they are called in
SCOPE_TRICKS = frozenset(
    """
    eval exec locals super vars
    """.split()
)

# names that scripted code resolves before anything that they hold in Python
SCRIPT_BUILTINS = frozenset(
    """
    abs all any bin bool chr complex dict divmod enumerate float getattr hasattr hash hex id int
    isinstance len list max min oct ord pow print range round sorted str sum tuple zip
    """.split()
)

# functions that are not linear in a tensor: a backward that applies one to an output gradient has
# no transpose
NONLINEAR = frozenset(
    """
    abs acos acosh argmax argmin asin asinh atan atanh bernoulli ceil clamp clamp_max clamp_min
    clip clip_grad_norm_ cos cosh erf erfc exp expm1 floor frac frexp gelu hardshrink hardtanh
    heaviside log log10 log1p log2 log_softmax logsumexp max median min nan_to_num norm normalize
    pow reciprocal relu rint round rsqrt sgn sigmoid sign silu sin sinh softmax softplus softshrink
    sort sqrt square std tan tanh threshold topk trunc var vector_norm
    """.split()
)

# methods that take the form of another tensor, and none of its values
LIKE = frozenset("expand_as new_tensor reshape_as type_as view_as".split())
