"""log det of a positive definite matrix through its Cholesky factor."""

import torch

import s2s

TRUE_GRADIENT, SCRIPTS, TRANSFORMS = True, True, True


@s2s.autograd_script
def log_det(a):
    symmetric = (a + a.mT) / 2
    factor = torch.linalg.cholesky(symmetric)
    y = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def backward(g):
        inverse = torch.cholesky_solve(torch.eye(a.shape[-1], dtype=a.dtype), factor)
        return g[..., None, None] * inverse

    return y, backward


FUNCTION = log_det


def inputs():
    g = torch.Generator().manual_seed(33)
    a = torch.randn(3, 3, generator=g, dtype=torch.double)
    return [(a @ a.T + torch.eye(3, dtype=torch.double),)]
