"""An exported policy in a program that has neither this package nor torch: NumPy and onnxruntime are enough.

    spo export RUN policy.onnx
    python examples/run_onnx.py policy.onnx

The file takes observations as the environment shows them, with a batch in front, and gives actions as the environment
takes them; its metadata describes both. Copy this file to where the policy is needed.
"""

import json
import sys

import numpy as np
import onnxruntime

TYPES = {"float": np.float32, "double": np.float64, "bool": np.bool_, "uint8": np.uint8, "int8": np.int8}


class ExportedPolicy:
    """A policy that `spo export` wrote."""

    def __init__(self, path: str):
        self.session = onnxruntime.InferenceSession(path)
        self.description = json.loads(self.session.get_modelmeta().custom_metadata_map["policy.json"])

    def act(self, **observation: np.ndarray) -> np.ndarray:
        """The actions for a batch: `act(observation=batch)`, or the parts of a Dict by their names."""
        return self.session.run(["action"], observation)[0]

    def make_inputs(self, batch: int) -> dict[str, np.ndarray]:
        """Zeros in the shape and type of each input, to be filled."""
        return {
            part.name: np.zeros((batch, *part.shape[1:]), TYPES.get(part.type[7:-1], np.int64))
            for part in self.session.get_inputs()
        }


def main(path: str) -> np.ndarray:
    policy = ExportedPolicy(path)
    print(policy.description["env"], policy.description["action_space"])
    action = policy.act(**policy.make_inputs(batch=3))
    print(action)
    return action


if __name__ == "__main__":
    main(sys.argv[1])
