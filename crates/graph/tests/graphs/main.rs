//! Graphs: operations, and what each pass does with them.

mod again;
mod attention;
mod passes;
mod regions;
