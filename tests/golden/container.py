"""Writes the safetensors container: header length, JSON header, data.

Layout: 8 bytes little-endian length of the header, the header padded with spaces to a multiple of 8, then the
tensors back to back without holes. Tensors are ordered by falling element size and then by name, so that every
tensor is aligned to its element and the bytes depend on nothing but the content.
"""

import json

import torch

DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def tensor_bytes(tensor):
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:  # numpy has no bf16: take the bits
        tensor = tensor.view(torch.int16)
    array = tensor.numpy()
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def serialize(tensors, metadata):
    """The bytes of a safetensors file with these tensors (name -> tensor) and metadata (name -> text)."""
    header = {"__metadata__": metadata}
    chunks = []
    offset = 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        data = tensor_bytes(tensors[name])
        header[name] = {
            "dtype": DTYPE_NAMES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(chunks)
