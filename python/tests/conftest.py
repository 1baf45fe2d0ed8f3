"""Tests of the Python package run on one thread: many small ops share a machine with others."""

import torch

torch.set_num_threads(1)
