import torch


# torch.ops.s2s.s2s_functions_layers_layer_norm(Tensor x, Tensor weight, Tensor bias, float eps=1e-5) -> Tensor
def layer_norm(x, weight, bias, eps=1e-5):
    # Ba et al. 2016, over the last dimension.
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    x_hat = centred * rstd
    return x_hat * weight + bias
