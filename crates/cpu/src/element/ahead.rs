//! The lines of the caches that are asked for while a tile is computed: those of the next one. Where a tile takes several
//! steps, most of them find all in the first cache, and memory would be idle.

use super::{Plan, Span};
use crate::stream::{LINE, Share, prefetch_near};

impl Plan<'_> {
    /// Asks for a share of a tile that comes next, if there is one: of what lies densely in memory.
    pub(super) fn ask_for(&self, span: Span, share: Share) {
        if span.start >= self.rows {
            return;
        }
        let (first, count) = span.elements(false);
        let ask = |from: *mut u8, size: usize| {
            let from = from.wrapping_add(first * size);
            share.range((count * size).div_ceil(LINE)).for_each(|line| prefetch_near(from.wrapping_add(line * LINE)));
        };
        for source in self.sources.iter().filter(|source| !source.of_rows && source.walk.is_dense()) {
            ask(source.first.pointer(), source.dtype.size());
        }
        for sink in self.sinks.iter().filter(|sink| sink.is_apart) {
            ask(sink.first.pointer(), sink.dtype.size());
        }
    }

    /// Asks for a share of the blocks that begin with an element, of what is read by strips.
    pub(super) fn ask_for_blocks(&self, element: usize, share: Share) {
        for source in &self.sources {
            if let Some((turned, _)) = &source.turned {
                turned.ask_for(source.first.pointer(), element, share);
            }
        }
    }
}
