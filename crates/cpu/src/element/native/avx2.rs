//! Machine code for AVX2, FMA and F16C: vectors of 8, masks are vectors whose lanes are all ones or all zeros.

use super::program::{Builder, Source};
use super::target::{Codes, SIGN, Target};
use crate::math::Table;
use iced_x86::{Code as X86, Register};

pub struct Avx2;

impl Target for Avx2 {
    const CODES: Codes = Codes {
        load: X86::VEX_Vmovups_ymm_ymmm256,
        store: X86::VEX_Vmovups_ymmm256_ymm,
        store_past_caches: X86::VEX_Vmovntps_m256_ymm,
        broadcast: X86::VEX_Vbroadcastss_ymm_m32,
        copy: X86::VEX_Vmovaps_ymm_ymmm256,
        widen: X86::VEX_Vpmovzxwd_ymm_xmmm128,
        from_f16: X86::VEX_Vcvtph2ps_ymm_xmmm128,
        to_f16: X86::VEX_Vcvtps2ph_xmmm128_ymm_imm8,
        add: X86::VEX_Vaddps_ymm_ymm_ymmm256,
        sub: X86::VEX_Vsubps_ymm_ymm_ymmm256,
        mul: X86::VEX_Vmulps_ymm_ymm_ymmm256,
        div: X86::VEX_Vdivps_ymm_ymm_ymmm256,
        sqrt: X86::VEX_Vsqrtps_ymm_ymmm256,
        round: X86::VEX_Vroundps_ymm_ymmm256_imm8,
        min: X86::VEX_Vminps_ymm_ymm_ymmm256,
        max: X86::VEX_Vmaxps_ymm_ymm_ymmm256,
        compare: X86::VEX_Vcmpps_ymm_ymm_ymmm256_imm8,
        fma_over_a: X86::VEX_Vfmadd213ps_ymm_ymm_ymmm256,
        fma_over_c: X86::VEX_Vfmadd231ps_ymm_ymm_ymmm256,
        int_to_float: X86::VEX_Vcvtdq2ps_ymm_ymmm256,
        int_add: X86::VEX_Vpaddd_ymm_ymm_ymmm256,
        int_sub: X86::VEX_Vpsubd_ymm_ymm_ymmm256,
        and: X86::VEX_Vpand_ymm_ymm_ymmm256,
        or: X86::VEX_Vpor_ymm_ymm_ymmm256,
        xor: X86::VEX_Vpxor_ymm_ymm_ymmm256,
        mask_and: X86::VEX_Vpand_ymm_ymm_ymmm256,
        mask_or: X86::VEX_Vpor_ymm_ymm_ymmm256,
        mask_xor: X86::VEX_Vpxor_ymm_ymm_ymmm256,
        shift_left: X86::VEX_Vpslld_ymm_ymm_imm8,
        shift_right: X86::VEX_Vpsrld_ymm_ymm_imm8,
        shift_right_signed: X86::VEX_Vpsrad_ymm_ymm_imm8,
    };
    const LANES: usize = 8;
    const VECTORS: (Register, u32) = (Register::YMM0, 16);
    const HAS_MASKS: bool = false;
    const SCALE: Option<X86> = None;

    fn part(code: X86, operand: u32) -> Option<Register> {
        match (code, operand) {
            (X86::VEX_Vcvtps2ph_xmmm128_ymm_imm8 | X86::VEX_Vextracti128_xmmm128_ymm_imm8, 0)
            | (X86::VEX_Vcvtph2ps_ymm_xmmm128, 1)
            | (
                X86::VEX_Vpackusdw_xmm_xmm_xmmm128
                | X86::VEX_Vpackssdw_xmm_xmm_xmmm128
                | X86::VEX_Vpacksswb_xmm_xmm_xmmm128
                | X86::VEX_Vpabsb_xmm_xmmm128
                | X86::VEX_Vmovq_xmmm64_xmm
                | X86::VEX_Vmovdqu_xmmm128_xmm,
                _,
            ) => Some(Register::XMM0),
            _ => None,
        }
    }

    fn load_bools(code: &mut Builder<Self>, address: u16) -> Source {
        let numbers = code.load(X86::VEX_Vpmovzxbd_ymm_xmmm64, (address, 1));
        code.mask(X86::VEX_Vpcmpgtd_ymm_ymm_ymmm256, &[numbers, Source::Constant(0)], None)
    }

    fn store_bools(code: &mut Builder<Self>, address: u16, mask: Source) {
        let words = halves(code, X86::VEX_Vpackssdw_xmm_xmm_xmmm128, mask);
        let bytes = code.vector(X86::VEX_Vpacksswb_xmm_xmm_xmmm128, &[words, words]);
        let bytes = code.vector(X86::VEX_Vpabsb_xmm_xmmm128, &[bytes]);
        code.store(X86::VEX_Vmovq_xmmm64_xmm, (address, 1), bytes, None);
    }

    fn store_bf16(code: &mut Builder<Self>, address: u16, value: Source) {
        let high = code.shift(Self::CODES.shift_right, value, 16);
        let words = halves(code, X86::VEX_Vpackusdw_xmm_xmm_xmmm128, high);
        code.store(X86::VEX_Vmovdqu_xmmm128_xmm, (address, 2), words, None);
    }

    fn not(code: &mut Builder<Self>, mask: Source) -> Source {
        code.mask(Self::CODES.mask_xor, &[mask, Source::Constant(u32::MAX)], None)
    }

    fn within(code: &mut Builder<Self>, mask: Source, x: Source) -> Source {
        code.vector(Self::CODES.and, &[mask, x])
    }

    fn blend(code: &mut Builder<Self>, mask: Source, a: Source, b: Source) -> Source {
        let b = code.computed(b);
        code.vector(X86::VEX_Vblendvps_ymm_ymm_ymmm256_ymm, &[b, a, mask])
    }

    fn extremum(code: &mut Builder<Self>, is_max: bool, a: Source, b: Source) -> Source {
        let (a, b) = (code.computed(a), code.computed(b));
        // They differ only where zeros do: of those, +0 has no bit and −0 has the sign.
        let (one, both) = if is_max { (Self::CODES.max, Self::CODES.and) } else { (Self::CODES.min, Self::CODES.or) };
        let (x, y) = (code.vector(one, &[a, b]), code.vector(one, &[b, a]));
        code.vector(both, &[x, y])
    }

    fn copysign(code: &mut Builder<Self>, size: Source, sign: Source) -> Source {
        let codes = Self::CODES;
        let size = code.either(codes.and, size, Source::Constant(!SIGN));
        let sign = code.either(codes.and, sign, Source::Constant(SIGN));
        code.vector(codes.or, &[size, sign])
    }

    fn of_tables<const N: usize>(code: &mut Builder<Self>, tables: &'static [Table; N], index: Source) -> [Source; N] {
        // A blend looks at the highest bit.
        let is_upper = code.shift(Self::CODES.shift_left, index, 28);
        let number = |i: usize| {
            let table = &tables[i];
            let [lower, upper] = [0, 8]
                .map(|first| code.vector(X86::VEX_Vpermps_ymm_ymm_ymmm256, &[index, Source::Table { table, first }]));
            Self::blend(code, is_upper, upper, lower)
        };
        std::array::from_fn(number)
    }
}

/// The lanes of both halves of a vector, packed into one of half its width.
fn halves(code: &mut Builder<Avx2>, pack: X86, vector: Source) -> Source {
    let upper = code.immediate(X86::VEX_Vextracti128_xmmm128_ymm_imm8, &[vector], 1);
    code.vector(pack, &[vector, upper])
}
