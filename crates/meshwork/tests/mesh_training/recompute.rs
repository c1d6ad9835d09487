//! Blocks that are computed again, on meshes: equal bits.

use crate::models::{Subject, gpt, llama};
use crate::run::{Layout, Recipe};

/// All blocks are computed again.
pub fn recomputed(subject: Subject) -> Subject {
    subject.model.set_recompute(usize::MAX);
    subject
}

#[test]
fn computing_blocks_again_changes_no_bit_on_any_mesh() {
    let plans = [
        "data=2,zero=0",
        "data=2,zero=1,accumulate=2",
        "data=3,zero=2",
        "data=2,zero=3",
        "tensor=2",
        "data=2,tensor=2,zero=3,accumulate=2",
    ];
    let layouts = plans.map(Layout::of);
    // Each against one device that keeps everything.
    for subject in [gpt, llama] {
        Recipe { again: Some(recomputed), ..Recipe::new(subject, 3) }.check(&layouts);
    }
}
