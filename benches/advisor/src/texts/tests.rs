use super::*;

#[test]
fn texts_and_answers() {
    for (name, text) in [(
        "fragmented",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a total capacity of 79.33 GiB of which 26.16 GiB is free. Process 1234 has 53.16 GiB memory in use. Of the allocated memory 11.97 GiB is allocated by PyTorch, and 40.69 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    )] {
        insta::assert_snapshot!(name, explain(text, None).unwrap().page());
    }
}
