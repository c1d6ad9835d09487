//! Packing: rows of an operand into panels, term by term, as the microkernels read them.
//!
//! Element (row, term) lies at `rows[row] + terms[term]`. A panel has `width` rows: its element (row, term) goes to
//! `term · width + row`. What stands in rows that are missing from the last panel is some number of no meaning.

use super::real::{Element, same};
use crate::Level;
use half::{bf16, f16};

/// Elements that packing may write after the last panel.
pub const SLACK: usize = 16;

/// Rows of the widest panel.
pub const WIDEST: usize = 32;

/// The width and the distance of panels of so many terms that lie behind each other.
pub fn dense(width: usize, terms: usize) -> [usize; 2] {
    [width, width * terms]
}

/// Packs `rows` × `terms` into panels of a width that are `distance` apart, at least `terms.len() · width`.
///
/// # Safety
/// Every element must be readable, and between the first and the last of them must be nothing but memory of the same
/// buffer. `out` must have room for the panels and [`SLACK`] more.
pub unsafe fn pack<S: Element>(
    level: Level,
    data: *const S,
    rows: &[isize],
    terms: &[isize],
    [width, distance]: [usize; 2],
    out: *mut S::Real,
) {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        let lies = [width, distance];
        use super::pack_x86::pack;
        let wide = level >= Level::Avx512;
        // SAFETY: the caller's promise; the types are the same.
        unsafe {
            match () {
                () if same::<S, f32>() => return pack::<f32>(data.cast(), rows, terms, lies, out.cast(), wide),
                () if same::<S, bf16>() => return pack::<bf16>(data.cast(), rows, terms, lies, out.cast(), wide),
                () if same::<S, f16>() => return pack::<f16>(data.cast(), rows, terms, lies, out.cast(), wide),
                () => {}
            }
        }
    }
    let _ = (level, same::<S, f32>());
    for (p, panel) in rows.chunks(width).enumerate() {
        // SAFETY: panel `p` of the caller's room, elements of the caller's.
        unsafe {
            let out = out.add(p * distance);
            for (k, &term) in terms.iter().enumerate() {
                scalar(data, panel, term, width, out.add(k * width));
            }
        }
    }
}

/// Packs one panel whose rows lie side by side; the first one is at `data`.
///
/// # Safety
/// As for [`pack`].
pub unsafe fn pack_columns<S: Element>(level: Level, data: *const S, terms: &[isize], width: usize, out: *mut S::Real) {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx2 && same::<S, f32>() && width.is_multiple_of(8) {
        // SAFETY: the caller's promise; the types are the same.
        return unsafe { super::pack_x86::copy(data.cast(), terms, width, out.cast()) };
    }
    let rows: [isize; WIDEST] = std::array::from_fn(|i| i as isize);
    // SAFETY: the caller's promise; no panel is wider.
    unsafe { pack(level, data, &rows[..width], terms, dense(width, terms.len()), out) };
}

/// Transposes rows of `terms` neighbouring elements: element `k` of all of them goes to `out + k · step`.
///
/// # Safety
/// Every element must be readable, and as many numbers for each term be writable.
pub unsafe fn transpose<S: Element>(
    level: Level,
    data: *const S,
    rows: &[isize],
    terms: usize,
    step: usize,
    out: *mut S::Real,
) {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        use super::pack_x86::transpose;
        let wide = level >= Level::Avx512;
        // SAFETY: the caller's promise; the types are the same.
        unsafe {
            match () {
                () if same::<S, f32>() => return transpose::<f32>(data.cast(), rows, terms, step, out.cast(), wide),
                () if same::<S, bf16>() => return transpose::<bf16>(data.cast(), rows, terms, step, out.cast(), wide),
                () if same::<S, f16>() => return transpose::<f16>(data.cast(), rows, terms, step, out.cast(), wide),
                () => {}
            }
        }
    }
    let _ = (level, same::<S, f32>());
    for (i, &row) in rows.iter().enumerate() {
        for k in 0..terms {
            // SAFETY: the caller's promise.
            unsafe { *out.add(k * step + i) = (*data.offset(row).add(k)).widen() };
        }
    }
}

/// One term of a panel, element by element.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
pub unsafe fn scalar<S: Element>(data: *const S, panel: &[isize], term: isize, width: usize, out: *mut S::Real) {
    // SAFETY: the caller's promise.
    unsafe {
        for (i, &row) in panel.iter().enumerate() {
            *out.add(i) = (*data.offset(row + term)).widen();
        }
        for i in panel.len()..width {
            *out.add(i) = super::Real::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::offsets::evenly;
    use super::*;

    #[test]
    fn every_width_and_pattern_packs_the_same_at_every_level() {
        packs_the_same(|i| i as f32);
    }

    #[test]
    fn narrow_elements_are_widened() {
        // Any finite number.
        packs_the_same(|i| bf16::from_bits((i * 97) as u16 & 0xbf7f));
        packs_the_same(|i| f16::from_bits((i * 97) as u16 & 0xbbff));
    }

    #[test]
    fn rows_are_transposed_the_same_at_every_level() {
        transposes_the_same(|i| i as f32);
        transposes_the_same(|i| i as f64);
        transposes_the_same(|i| bf16::from_bits((i * 97) as u16 & 0xbf7f));
        transposes_the_same(|i| f16::from_bits((i * 97) as u16 & 0xbbff));
    }

    /// Of all sizes around those of squares; nothing beside the result is written.
    fn transposes_the_same<S: Element>(element: fn(usize) -> S) {
        let data: Vec<S> = (0..4000).map(element).collect();
        for (rows, terms) in (1..36).flat_map(|rows| [1, 7, 8, 9, 16, 23, 33, 64].map(|terms| (rows, terms))) {
            let firsts: Vec<isize> = (0..rows as isize).map(|i| i * 101 + i % 3).collect();
            let step = rows + 3;
            let beside = element(1).widen();
            for level in Level::available() {
                let mut out = vec![beside; terms * step];
                // SAFETY: rows of 64 elements before number 3,600, and room for all terms.
                unsafe { transpose(level, data.as_ptr(), &firsts, terms, step, out.as_mut_ptr()) };
                for (k, i) in (0..terms).flat_map(|k| (0..step).map(move |i| (k, i))) {
                    let want = firsts.get(i).map_or(beside, |&first| data[first as usize + k].widen());
                    assert!(out[k * step + i] == want, "{rows} rows, {terms} terms, ({k}, {i}), {level:?}");
                }
            }
        }
    }

    fn packs_the_same<S: Element<Real = f32>>(element: fn(usize) -> S) {
        let data: Vec<S> = (0..8000).map(element).collect();
        let patterns: [fn(isize) -> isize; 7] =
            [|i| i, |i| i * 31, |i| i / 9 * 13 + i % 9, |i| i % 9 - i / 9 * 13, |i| i / 3 * 60 + i % 3, |i| -i, |_| 5];
        let pairs = patterns.iter().flat_map(|r| patterns.iter().map(move |t| (r, t)));
        for ((rows, terms), count) in pairs.flat_map(|pair| [61, 128, 131].map(|count| (pair, count))) {
            let rows: Vec<isize> = (0..43).map(rows).collect();
            let terms: Vec<isize> = (0..count).map(terms).collect();
            // SAFETY: offsets are between −300 and 5500.
            let middle = unsafe { data.as_ptr().add(1500) };
            for width in 1..=32usize {
                let panels = rows.len().div_ceil(width);
                for (level, apart) in Level::available().into_iter().flat_map(|level| [(level, 0), (level, 17)]) {
                    let distance = width * terms.len() + apart;
                    let mut out = vec![f32::NAN; panels * distance + SLACK];
                    // SAFETY: as above; the room is as large as `pack` wants it.
                    unsafe { pack(level, middle, &rows, &terms, [width, distance], out.as_mut_ptr()) };
                    for (i, &row) in rows.iter().enumerate() {
                        for (k, &term) in terms.iter().enumerate() {
                            let found = out[i / width * distance + k * width + i % width];
                            assert_eq!(
                                found,
                                element((1500 + row + term) as usize).widen(),
                                "width {width}, row {i}, term {k}, {level:?}"
                            );
                        }
                    }
                    assert!(
                        (0..panels).all(|p| out[p * distance..][..width * terms.len()].iter().all(|x| !x.is_nan()))
                    );
                    if evenly(&rows) == Some(1) {
                        let mut panel = vec![f32::NAN; width * terms.len() + SLACK];
                        // SAFETY: the first rows.
                        unsafe { pack_columns(level, middle, &terms, width, panel.as_mut_ptr()) };
                        assert_eq!(panel[..width * terms.len()], out[..width * terms.len()]);
                    }
                }
            }
        }
    }
}
