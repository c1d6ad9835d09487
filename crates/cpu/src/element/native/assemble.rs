//! From a program to the bytes of a function: registers for its values, and the loop over vectors.

use super::Refused;
use super::lower::{Place, Program, Source, Step, Value};
use super::memory::LANES;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand, OpKind, Register,
};

/// The caller's registers, in the order of its arguments.
const TABLE: Register = Register::RDI;
const CONSTANTS: Register = Register::RSI;
const WHOLE: Register = Register::RDX;
const REST: Register = Register::ECX;
/// The first element of the vector; the argument before has gone to [`TAIL`] by then.
const INDEX: Register = Register::RCX;
/// The elements of the last vector.
const TAIL: Register = Register::K7;
/// Where an address is brought that has no register of its own.
const SPARE: Register = Register::RAX;
/// Registers for addresses. Those from `RBX` on belong to the caller.
const ADDRESSES: [Register; 10] = [
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
const FREE_TO_USE: usize = 4;

/// The bytes of the function, and its table of constants.
pub fn assemble(program: &Program) -> Result<(Vec<u8>, Vec<u32>), Refused> {
    let registers = registers(program)?;
    let mut assembly = Assembly { program, registers, constants: vec![], instructions: vec![], labels: 0 };
    assembly.function();
    let block = InstructionBlock::new(&assembly.instructions, 0);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
    Ok((encoded.expect("instructions that the encoder knows").code_buffer, assembly.constants))
}

/// A register for every value that has one. A value's register is free again for the result of the last step that
/// reads it.
fn registers(program: &Program) -> Result<Vec<Register>, Refused> {
    let mut last = vec![0; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        step.reads().for_each(|value| last[usize::from(value)] = i);
    }
    let mut vectors: Vec<Register> = (0..32).rev().map(|i| Register::ZMM0 + i).collect();
    // The first mask stands for no mask.
    let mut masks: Vec<Register> = (1..7).rev().map(|i| Register::K0 + i).collect();
    let mut registers = vec![Register::None; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        let mut ended: Vec<Value> = step.reads().filter(|&value| last[usize::from(value)] == i).collect();
        ended.sort_unstable();
        ended.dedup();
        // What is given a result keeps its register for it, if nobody else reads it.
        let over = match step.sources.first() {
            Some(&Source::Value(value)) if step.over => Some(value),
            _ => None,
        };
        if let Some(value) = over
            && last[usize::from(value)] == i
        {
            ended.retain(|&other| other != value);
            registers[i] = registers[usize::from(value)];
        } else if over.is_some() {
            // Its own, in which no source is.
            registers[i] = vectors.pop().ok_or(Refused::Registers)?;
        }
        for value in ended {
            match program.steps[usize::from(value)].to {
                Place::Mask => masks.push(registers[usize::from(value)]),
                _ => vectors.push(registers[usize::from(value)]),
            }
        }
        registers[i] = match step.to {
            _ if over.is_some() => registers[i],
            Place::Vector => vectors.pop().ok_or(Refused::Registers)?,
            Place::Mask => masks.pop().ok_or(Refused::Registers)?,
            Place::Memory { .. } => Register::None,
        };
        if last[i] == 0 {
            // Nobody reads it.
            match step.to {
                Place::Vector => vectors.push(registers[i]),
                Place::Mask => masks.push(registers[i]),
                Place::Memory { .. } => {}
            }
        }
    }
    Ok(registers)
}

struct Assembly<'a> {
    program: &'a Program,
    registers: Vec<Register>,
    constants: Vec<u32>,
    instructions: Vec<Instruction>,
    labels: u64,
}

/// A place in the code.
#[derive(Clone, Copy)]
struct Label(u64);

impl Assembly<'_> {
    /// The loop over whole vectors and once the body for the rest.
    fn function(&mut self) {
        let saved = &ADDRESSES[FREE_TO_USE.min(self.program.addresses)..self.program.addresses.min(ADDRESSES.len())];
        for &register in saved {
            self.add(Instruction::with1(Code::Push_r64, register));
        }
        self.add(Instruction::with2(Code::VEX_Kmovd_kr_r32, TAIL, REST));
        for (i, &register) in ADDRESSES.iter().enumerate().take(self.program.addresses) {
            self.address(i as u16, register);
        }
        self.add(Instruction::with2(Code::Xor_r32_rm32, Register::ECX, Register::ECX));
        let (start, rest, end) = (self.label(), self.label(), self.label());
        self.add(Instruction::with2(Code::Test_rm64_r64, WHOLE, WHOLE));
        self.add(Instruction::with_branch(Code::Je_rel32_64, rest.0));
        self.place(start);
        self.body(false);
        self.add(Instruction::with2(Code::Add_rm64_imm8, INDEX, LANES as i32));
        self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, WHOLE));
        self.add(Instruction::with_branch(Code::Jb_rel32_64, start.0));
        self.place(rest);
        self.add(Instruction::with2(Code::VEX_Kortestw_kr_kr, TAIL, TAIL));
        self.add(Instruction::with_branch(Code::Je_rel32_64, end.0));
        self.body(true);
        self.place(end);
        self.add(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        for &register in saved.iter().rev() {
            self.add(Instruction::with1(Code::Pop_r64, register));
        }
        self.add(Ok(Instruction::with(Code::Retnq)));
    }

    fn add(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) {
        self.instructions.push(instruction.expect("operands that fit the instruction"));
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Labels the next instruction.
    fn place(&mut self, label: Label) {
        let mut nop = Instruction::with(Code::Nopd);
        nop.set_ip(label.0);
        self.instructions.push(nop);
    }

    /// Brings an address into a register.
    fn address(&mut self, address: u16, register: Register) {
        let entry = MemoryOperand::with_base_displ(TABLE, i64::from(address) * 8);
        self.add(Instruction::with2(Code::Mov_r64_rm64, register, entry));
    }

    /// Everything for one vector, of which there may be the elements of [`TAIL`] alone.
    fn body(&mut self, is_tail: bool) {
        for (i, step) in self.program.steps.iter().enumerate() {
            self.step(i, step, is_tail);
        }
    }

    fn step(&mut self, i: usize, step: &Step, is_tail: bool) {
        let mut instruction = Instruction::default();
        instruction.set_code(step.code);
        let mut operand = 0;
        match step.to {
            Place::Memory { address, bytes } => {
                self.elements(&mut instruction, operand, address, bytes);
                if is_tail {
                    if step.code == Code::EVEX_Vmovntps_m512_zmm {
                        // Only whole lines go past the caches.
                        instruction.set_code(Code::EVEX_Vmovups_zmmm512_k1z_zmm);
                    }
                    instruction.set_op_mask(TAIL);
                }
            }
            _ => register(&mut instruction, operand, self.registers[i]),
        }
        let mut sources = &step.sources[..];
        if step.over {
            let Source::Value(value) = sources[0] else { unreachable!("what is given a result is in a register") };
            let (from, to) = (self.registers[usize::from(value)], self.registers[i]);
            if from != to {
                self.add(Instruction::with2(Code::EVEX_Vmovaps_zmm_k1z_zmmm512, to, from));
            }
            sources = &sources[1..];
        }
        for &source in sources {
            operand += 1;
            match source {
                Source::Value(value) => register(&mut instruction, operand, self.registers[usize::from(value)]),
                Source::Constant(bits) => {
                    let place = self.constants.iter().position(|&known| known == bits).unwrap_or_else(|| {
                        self.constants.push(bits);
                        self.constants.len() - 1
                    });
                    instruction.set_op_kind(operand, OpKind::Memory);
                    instruction.set_memory_base(CONSTANTS);
                    instruction.set_memory_displacement64(4 * place as u64);
                    instruction.set_memory_displ_size(8);
                    // A broadcast itself reads one number.
                    instruction.set_is_broadcast(step.code != Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32);
                }
                Source::One { address } => {
                    let base = self.base(address);
                    instruction.set_op_kind(operand, OpKind::Memory);
                    instruction.set_memory_base(base);
                }
                Source::Memory { address, bytes } => {
                    self.elements(&mut instruction, operand, address, bytes);
                    if is_tail {
                        instruction.set_op_mask(TAIL);
                        instruction.set_zeroing_masking(true);
                    }
                }
            }
        }
        if let Some(immediate) = step.immediate {
            instruction.set_op_kind(operand + 1, OpKind::Immediate8);
            instruction.set_immediate8(immediate);
        }
        if let Some(lanes) = step.lanes {
            instruction.set_op_mask(self.registers[usize::from(lanes)]);
            // A blend takes its other operand there.
            instruction.set_zeroing_masking(step.code != Code::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32);
        }
        self.instructions.push(instruction);
    }

    /// The register with an address.
    fn base(&mut self, address: u16) -> Register {
        ADDRESSES.get(usize::from(address)).copied().unwrap_or_else(|| {
            self.address(address, SPARE);
            SPARE
        })
    }

    /// The elements of the vector at an address.
    fn elements(&mut self, instruction: &mut Instruction, operand: u32, address: u16, bytes: u32) {
        let base = self.base(address);
        instruction.set_op_kind(operand, OpKind::Memory);
        instruction.set_memory_base(base);
        instruction.set_memory_index(INDEX);
        instruction.set_memory_index_scale(bytes);
        instruction.set_memory_displ_size(1);
    }
}

/// A register by the name of the part that an instruction works on.
fn part(code: Code, operand: u32, register: Register) -> Register {
    let number = || register as u32 - Register::ZMM0 as u32;
    match (code, operand) {
        _ if !register.is_zmm() => register,
        (
            Code::EVEX_Vmovdqu8_xmm_k1z_xmmm128
            | Code::EVEX_Vmovdqu8_xmmm128_k1z_xmm
            | Code::EVEX_Vptestmb_kr_k1_xmm_xmmm128
            | Code::EVEX_Vpmovm2b_xmm_kr
            | Code::EVEX_Vpabsb_xmm_k1z_xmmm128,
            _,
        ) => Register::XMM0 + number(),
        (Code::EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae, 0) | (Code::EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae, 1) => {
            Register::YMM0 + number()
        }
        _ => register,
    }
}

fn register(instruction: &mut Instruction, operand: u32, register: Register) {
    instruction.set_op_kind(operand, OpKind::Register);
    instruction.set_op_register(operand, part(instruction.code(), operand, register));
}
