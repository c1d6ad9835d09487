//! Which placements are tried together.

use meshwork::mesh::Placement;

/// Every placement of a value of a shape along so many axes: replicated, and split along each dimension with these units.
pub fn choices(shape: &[usize], axes: usize, units: &[usize]) -> Vec<Vec<Placement>> {
    let splits = (0..shape.len()).flat_map(|dim| units.iter().map(move |&unit| Placement::Split { dim, unit }));
    let one: Vec<Placement> = std::iter::once(Placement::Replicated).chain(splits).collect();
    let extend = |lists: Vec<Vec<Placement>>, _| {
        lists.iter().flat_map(|list| one.iter().map(move |&next| [&list[..], &[next]].concat())).collect()
    };
    (0..axes).fold(vec![vec![]], extend)
}

/// Placements as text.
pub fn describe(placements: &[Placement]) -> String {
    let one = |placement: &Placement| match placement.cut() {
        Some((_, unit)) if unit > 0 => format!("{placement} at multiples of {unit}"),
        _ => placement.to_string(),
    };
    placements.iter().map(one).collect::<Vec<_>>().join(" × ")
}

/// Which choice each tensor takes: the last one is the result, choice 0 of each is replicated.
pub struct Choices;

impl Choices {
    /// All choices together if there are at most `most`; else those in which one operand and the result choose freely and
    /// the others are replicated, and those in which all choose the same.
    pub fn of(counts: &[usize], most: usize) -> Vec<Vec<usize>> {
        if counts.iter().product::<usize>() <= most {
            let extend = |lists: Vec<Vec<usize>>, &count: &usize| {
                lists.iter().flat_map(|list| (0..count).map(move |next| [&list[..], &[next]].concat())).collect()
            };
            return counts.iter().fold(vec![vec![]], extend);
        }
        let last = counts.len() - 1;
        let mut all: Vec<Vec<usize>> = Vec::new();
        for i in 0..last {
            for one in 0..counts[i] {
                for out in 0..counts[last] {
                    let mut chosen = vec![0; counts.len()];
                    (chosen[i], chosen[last]) = (one, out);
                    all.push(chosen);
                }
            }
        }
        let fewest = counts.iter().copied().min().unwrap_or(0);
        all.extend((0..fewest).map(|same| vec![same; counts.len()]));
        all.sort_unstable();
        all.dedup();
        all
    }
}
