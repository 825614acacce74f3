"""f32_copy(PATH, COPY): a GGUF file with all tensors in f32. @return COPY."""
import gguf
import numpy as np


def f32_copy(path, copy):
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(copy, reader.fields["general.architecture"].contents(), use_temp_file=True)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        rows = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, rows.reshape(tensor.shape[::-1]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return copy
