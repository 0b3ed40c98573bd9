"""How torch computes in this process."""

import torch

from spo.runtime.torch_tuning import use_one_thread


def test_the_number_of_threads_is_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
