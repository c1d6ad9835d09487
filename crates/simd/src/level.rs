//! The SIMD level that kernels run at. It never changes a bit of a result.

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Whatever the target has without asking; also the level on processors without the others. Fused
    /// multiply-adds run in software where the hardware has none.
    Portable = 1,
    /// ARMv8 with Advanced SIMD.
    Neon = 2,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2 = 3,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512 = 4,
    /// [`Level::Avx512`] with AVX-512 BF16, which multiplies pairs of bf16. A processor without that can run the level, too,
    /// in which a slow emulation stands for the one instruction; it does so only if it is told to.
    Avx512Bf16 = 5,
}

/// Whether the processor is a Zen 4 or older one of AMD's (families up to 19h), which stores a vector of AVX-512 in two
/// cycles; others store one a cycle. Asked for once: in a virtual machine the host answers.
#[cfg(target_arch = "x86_64")]
pub static UP_TO_ZEN_4: LazyLock<bool> = LazyLock::new(|| {
    let (maker, signature) = (std::arch::x86_64::__cpuid(0), std::arch::x86_64::__cpuid(1).eax);
    let family = (signature >> 8 & 0xf) + if signature >> 8 & 0xf == 0xf { signature >> 20 & 0xff } else { 0 };
    [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD" && family <= 0x19
});

/// 0: not yet detected.
static CURRENT: AtomicU8 = AtomicU8::new(0);

impl Level {
    /// Every level, weakest first.
    pub const ALL: [Level; 5] = [Level::Portable, Level::Neon, Level::Avx2, Level::Avx512, Level::Avx512Bf16];

    /// The name in `MESHWORK_SIMD` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Neon => "neon",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Avx512Bf16 => "avx512bf16",
        }
    }

    /// Whether this processor can run the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Portable => true,
            Level::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    // For masks of so many elements, in machine code.
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Level::Avx2 | Level::Avx512 | Level::Avx512Bf16 => false,
        }
    }

    /// Whether this processor has all instructions of the level, so that none is emulated.
    pub fn is_native(self) -> bool {
        self.is_available() && (self != Level::Avx512Bf16 || crate::microkernel::multiplies_pairs())
    }

    /// The levels that this processor can run, weakest first.
    pub fn available() -> Vec<Level> {
        Level::ALL.into_iter().filter(|l| l.is_available()).collect()
    }

    /// The level in force: the strongest one that is native, or the one named by the environment variable
    /// `MESHWORK_SIMD`, or the one given to [`Level::force`].
    ///
    /// # Panics
    /// When `MESHWORK_SIMD` names no level, or one that this processor cannot run.
    pub fn current() -> Level {
        match CURRENT.load(Ordering::Relaxed) {
            0 => {
                let level = Self::from_environment();
                CURRENT.store(level as u8, Ordering::Relaxed);
                level
            }
            n => Level::ALL.into_iter().find(|&l| l as u8 == n).expect("a stored level"),
        }
    }

    fn from_environment() -> Level {
        Self::requested().unwrap_or_else(|e| panic!("{e}"))
    }

    /// The strongest level that is native, or the one that `MESHWORK_SIMD` names.
    ///
    /// # Errors
    /// What is wrong with `MESHWORK_SIMD`, and what this processor can run.
    pub fn requested() -> Result<Level, String> {
        let available = Level::available();
        let Ok(name) = std::env::var("MESHWORK_SIMD") else {
            let native = available.into_iter().rfind(|level| level.is_native());
            return Ok(native.expect("portable is always there"));
        };
        let names: Vec<&str> = available.iter().map(|l| l.name()).collect();
        available
            .iter()
            .copied()
            .find(|l| l.name() == name)
            .ok_or_else(|| format!("MESHWORK_SIMD={name}: this processor can run {}", names.join(", ")))
    }

    /// Makes a level the one in force, for tests and measurements.
    ///
    /// # Panics
    /// When this processor cannot run it.
    pub fn force(level: Level) {
        assert!(level.is_available(), "this processor cannot run {}", level.name());
        CURRENT.store(level as u8, Ordering::Relaxed);
    }
}

/// Compiles a kernel for every level from one source.
///
/// `multiversion! { pub fn name<T: Bound>(args…) -> R = body; }` defines `name(level, args…)`, which runs
/// `body(args…)`, an `#[inline(always)]` function, compiled for the instructions of `level`. The compiler never
/// reorders floating-point operations, so the results are the same at every level.
#[macro_export]
macro_rules! multiversion {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$($generic:ident : $bound:path),*>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path;) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($generic: $bound),*>)? (level: $crate::Level, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                #[allow(clippy::too_many_arguments)]
                fn avx2 $(<$($generic: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                #[allow(clippy::too_many_arguments)]
                fn avx512 $(<$($generic: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? {
                    $body($($arg),*)
                }
                match level {
                    // SAFETY: a level is only in force when the processor has its features.
                    $crate::Level::Avx512 | $crate::Level::Avx512Bf16 => return unsafe { avx512 $(::<$($generic),*>)? ($($arg),*) },
                    // SAFETY: as above.
                    $crate::Level::Avx2 => return unsafe { avx2 $(::<$($generic),*>)? ($($arg),*) },
                    _ => {}
                }
            }
            let _ = level;
            $body($($arg),*)
        }
    };
}
