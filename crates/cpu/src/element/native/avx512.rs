//! Machine code for AVX-512: vectors of 16, masks in registers of their own.

use super::program::{Builder, Source};
use super::target::{Codes, SIGN, Target};
use crate::math::Table;
use iced_x86::{Code as X86, Register};

pub struct Avx512;

impl Target for Avx512 {
    const CODES: Codes = Codes {
        load: X86::EVEX_Vmovups_zmm_k1z_zmmm512,
        store: X86::EVEX_Vmovups_zmmm512_k1z_zmm,
        store_past_caches: X86::EVEX_Vmovntps_m512_zmm,
        broadcast: X86::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
        copy: X86::EVEX_Vmovaps_zmm_k1z_zmmm512,
        widen: X86::EVEX_Vpmovzxwd_zmm_k1z_ymmm256,
        from_f16: X86::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae,
        to_f16: X86::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae,
        add: X86::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er,
        sub: X86::EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er,
        mul: X86::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er,
        div: X86::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er,
        sqrt: X86::EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er,
        round: X86::EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae,
        min: X86::EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae,
        max: X86::EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae,
        compare: X86::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae,
        fma_over_a: X86::EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er,
        fma_over_c: X86::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er,
        int_to_float: X86::EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er,
        int_add: X86::EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32,
        int_sub: X86::EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32,
        and: X86::EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32,
        or: X86::EVEX_Vpord_zmm_k1z_zmm_zmmm512b32,
        xor: X86::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32,
        mask_and: X86::VEX_Kandw_kr_kr_kr,
        mask_or: X86::VEX_Korw_kr_kr_kr,
        mask_xor: X86::VEX_Kxorw_kr_kr_kr,
        shift_left: X86::EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8,
        shift_right: X86::EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8,
        shift_right_signed: X86::EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8,
    };
    const LANES: usize = 16;
    const VECTORS: (Register, u32) = (Register::ZMM0, 32);
    const HAS_MASKS: bool = true;
    const SCALE: Option<X86> = Some(X86::EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er);

    fn part(code: X86, operand: u32) -> Option<Register> {
        match (code, operand) {
            (
                X86::EVEX_Vmovdqu8_xmm_k1z_xmmm128
                | X86::EVEX_Vmovdqu8_xmmm128_k1z_xmm
                | X86::EVEX_Vptestmb_kr_k1_xmm_xmmm128
                | X86::EVEX_Vpmovm2b_xmm_kr
                | X86::EVEX_Vpabsb_xmm_k1z_xmmm128,
                _,
            ) => Some(Register::XMM0),
            (X86::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, 0) | (X86::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, 1) => {
                Some(Register::YMM0)
            }
            _ => None,
        }
    }

    fn load_bools(code: &mut Builder<Self>, address: u16) -> Source {
        let bytes = code.load(X86::EVEX_Vmovdqu8_xmm_k1z_xmmm128, (address, 1));
        code.mask(X86::EVEX_Vptestmb_kr_k1_xmm_xmmm128, &[bytes, bytes], None)
    }

    fn store_bools(code: &mut Builder<Self>, address: u16, mask: Source) {
        let ones = code.vector(X86::EVEX_Vpmovm2b_xmm_kr, &[mask]);
        let bytes = code.vector(X86::EVEX_Vpabsb_xmm_k1z_xmmm128, &[ones]);
        code.store(X86::EVEX_Vmovdqu8_xmmm128_k1z_xmm, (address, 1), bytes, None);
    }

    fn store_bf16(code: &mut Builder<Self>, address: u16, value: Source) {
        let high = code.shift(Self::CODES.shift_right, value, 16);
        code.store(X86::EVEX_Vpmovdw_ymmm256_k1z_zmm, (address, 2), high, None);
    }

    fn not(code: &mut Builder<Self>, mask: Source) -> Source {
        code.mask(X86::VEX_Knotw_kr_kr, &[mask], None)
    }

    fn within(code: &mut Builder<Self>, mask: Source, x: Source) -> Source {
        let is_constant = matches!(x, Source::Constant(_));
        code.masked(if is_constant { Self::CODES.broadcast } else { Self::CODES.copy }, mask, &[x])
    }

    fn blend(code: &mut Builder<Self>, mask: Source, a: Source, b: Source) -> Source {
        let b = code.computed(b);
        code.masked(X86::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32, mask, &[b, a])
    }

    fn extremum(code: &mut Builder<Self>, is_max: bool, a: Source, b: Source) -> Source {
        let a = code.computed(a);
        // Bit 2: the sign is that of the result; zeros are ordered by their signs.
        code.immediate(X86::EVEX_Vrangeps_zmm_k1z_zmm_zmmm512b32_imm8_sae, &[a, b], 4 + u8::from(is_max))
    }

    fn copysign(code: &mut Builder<Self>, size: Source, sign: Source) -> Source {
        let (size, sign) = (code.computed(size), code.computed(sign));
        // Where the third operand has a 1, the bit of the second.
        let sources = [size, sign, Source::Constant(SIGN)];
        code.over(X86::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8, &sources, Some(0b1101_1000))
    }

    fn of_tables<const N: usize>(code: &mut Builder<Self>, tables: &'static [Table; N], index: Source) -> [Source; N] {
        let number = |i: usize| {
            let table = Source::Table { table: &tables[i], first: 0 };
            code.vector(X86::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32, &[index, table])
        };
        std::array::from_fn(number)
    }
}
