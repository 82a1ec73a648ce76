"""Faster passes through an encoder, behind one interface: `FastEncoder` in `encoder.py`.

- `encoder.py` replaces an encoder's `forward`; off (`--no-fast`), the library's own runs.
- `packing.py` runs texts without padding and says why an encoder cannot (`can_pack`).
- `packed_layers.py`, `layer_kernels.py`, `attention_kernels.py`: layers of BERT-like encoders in few GPU kernels.
- `bf16_weights.py`, `cuda_graphs.py`, `bucketing.py`, `pinned_memory.py`: what those passes need on a GPU.
- `cpu.py`: shortcuts on a CPU.
"""
