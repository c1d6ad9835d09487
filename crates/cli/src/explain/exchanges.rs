//! The collectives that a step needs, as a table: what moves, how much of it, and why.

use super::table::Table;
use meshwork::graph::human_bytes;
use meshwork::graph::mesh::{Placement, Placements};
use meshwork::graph::passes::{Collective, CutReduction, Exchange};
use meshwork::graph::plan::Plan;
use meshwork::mesh::{Mesh, PlacedParameter};
use std::collections::BTreeMap;

/// Equal exchanges are one line.
#[derive(PartialEq, Eq)]
struct Line {
    kind: String,
    value: String,
    placements: String,
    reason: String,
}

/// The lines of the table, in the order in which the step comes to them, and totals for each kind and axis.
pub fn lines(plan: &Plan, mesh: &Mesh, parameters: &[PlacedParameter]) -> Vec<String> {
    let exchanges = &plan.exchanges;
    let mut found: Vec<(Line, usize, usize)> = Vec::new();
    let mut totals: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for exchange in exchanges {
        let line = Line {
            kind: kind(exchange),
            value: value(exchange, parameters),
            placements: placements(exchange, mesh),
            reason: reason(exchange),
        };
        let total = totals.entry(line.kind.clone()).or_default();
        (total.0, total.1) = (total.0 + 1, total.1 + exchange.bytes);
        match found.iter_mut().find(|(known, ..)| *known == line) {
            Some((_, times, bytes)) => (*times, *bytes) = (*times + 1, *bytes + exchange.bytes),
            None => found.push((line, 1, exchange.bytes)),
        }
    }
    let mut table = Table::new(&["collective", "times", "moved", "value", "placements", "because"]);
    for (Line { kind, value, placements, reason }, times, bytes) in found {
        table.row([kind, times.to_string(), human_bytes(bytes), value, placements, reason]);
    }
    let mut lines = table.lines();
    let all: usize = exchanges.iter().map(|exchange| exchange.bytes).sum();
    lines.push(String::new());
    let mut table = Table::new(&["total", "times", "moved"]);
    for (kind, (times, bytes)) in totals {
        table.row([kind, times.to_string(), human_bytes(bytes)]);
    }
    let again = plan.moved().saturating_sub(all);
    if again > 0 {
        table.row(["gathered again for later uses".to_string(), String::new(), human_bytes(again)]);
    }
    table.row(["all".to_string(), exchanges.len().to_string(), human_bytes(all + again)]);
    lines.extend(table.lines());
    lines
}

/// `all_reduce data`
fn kind(exchange: &Exchange) -> String {
    let mut kinds: Vec<(Collective, Vec<&str>)> = Vec::new();
    for (collective, axis) in &exchange.moves {
        match kinds.iter_mut().find(|(known, _)| known == collective) {
            Some((_, axes)) => axes.push(axis),
            None => kinds.push((*collective, vec![axis])),
        }
    }
    if kinds.is_empty() {
        return "copy".to_string();
    }
    let words = kinds.iter().map(|(collective, axes)| format!("{collective} {}", axes.join("×")));
    words.collect::<Vec<_>>().join(" + ")
}

/// The operation, type and shape; and which parameter has that shape, if it is one alone.
fn value(exchange: &Exchange, parameters: &[PlacedParameter]) -> String {
    let Exchange { made_by, ty, .. } = exchange;
    let shaped: Vec<&PlacedParameter> = parameters.iter().filter(|p| p.shape[..] == ty.shape[..]).collect();
    let like = match shaped[..] {
        [only] if ty.shape.numel() > 1 => format!(" like {}", only.name),
        _ => String::new(),
    };
    format!("{made_by} {ty}{like}")
}

/// `data: partial(sum) → replicated`, for the axes along which the value moves.
fn placements(exchange: &Exchange, mesh: &Mesh) -> String {
    let Exchange { from, to, moves, .. } = exchange;
    let said = |placements: &Option<Placements>, axis: usize| {
        placements.as_ref().map_or("elsewhere".to_string(), |placements| placements[axis].to_string())
    };
    // Cuts along one axis may move what lies along others.
    let moves_along = |axis: &str| moves.is_empty() || moves.iter().any(|(_, moved)| moved == axis);
    let axes = mesh.axes().iter().enumerate().filter(|(_, (axis, _))| moves_along(axis));
    let along = axes.map(|(at, (axis, _))| (axis, said(from, at), said(to, at)));
    let changed = along.filter(|(_, from, to)| !moves.is_empty() || from != to);
    changed.map(|(axis, from, to)| format!("{axis}: {from} → {to}")).collect::<Vec<_>>().join(", ")
}

/// Why the value cannot stay as it lies.
fn reason(exchange: &Exchange) -> String {
    let Exchange { reductions, used_by, from, to, moves, .. } = exchange;
    let user = match used_by {
        None => "an output of the step".to_string(),
        Some("place") => "the plan places it so".to_string(),
        Some(op) => format!("{op} needs it so"),
    };
    let mut merged: Vec<(String, Vec<&str>)> = Vec::new();
    for CutReduction { axis, op, is_over_samples } in reductions {
        if !moves.iter().any(|(_, moved)| moved == axis) {
            continue;
        }
        let what = format!("{} ({op})", if *is_over_samples { "a sum over samples" } else { "a reduction" });
        match merged.iter_mut().find(|(known, _)| *known == what) {
            Some((_, axes)) => axes.push(axis),
            None => merged.push((what, vec![axis])),
        }
    }
    let merged = merged.into_iter().map(|(what, axes)| format!("{what} is cut along {}", axes.join(" and ")));
    let is_sharded = |placement: &Placement| matches!(placement, Placement::Sharded { .. });
    let gathered = from.as_ref().is_some_and(|from| from.iter().any(is_sharded))
        && !to.as_ref().is_some_and(|to| to.iter().any(is_sharded));
    let gathered = gathered.then(|| "it is stored in parts".to_string());
    let entered = from.is_none().then(|| "it comes from outside of the mesh".to_string());
    let parts: Vec<String> = merged.chain(gathered).chain(entered).chain([user]).collect();
    parts.join("; ")
}
