//! From a program to the bytes of a function: registers for its values, and the loop over vectors.

use super::Refused;
use super::program::{Elements, Place, Program, Source, Step, Value};
use super::target::Target;
use crate::math::Table;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand, OpKind, Register,
};
use meshwork_graph::canonical::LANES;
use std::marker::PhantomData;

/// The caller's registers, in the order of its arguments.
const TABLE: Register = Register::RDI;
const CONSTANTS: Register = Register::RSI;
const WHOLE: Register = Register::RDX;
const REST: Register = Register::ECX;
/// The first element of the vector; the argument before has gone to [`TAIL`] by then.
const INDEX: Register = Register::RCX;
/// The elements of the last vector, where masks have registers.
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

/// The first entries of the table: the number of rows, where the vectors of a block or row end, where the last block of a row
/// begins, and a number of ones. The addresses follow, then how far it is from row to row for each.
pub mod entries {
    pub const ROWS: usize = 0;
    pub const END: usize = 1;
    pub const LAST: usize = 2;
    pub const ONES: usize = 3;
    pub const ADDRESSES: usize = 4;
}

/// The bytes of the function, and its constants. What is one number for all lanes is read once, before the loop, as
/// far as there are registers for it.
pub fn assemble<T: Target>(program: &Program) -> Result<(Vec<u8>, Vec<u32>), Refused> {
    let spread = program.spread();
    let fixed = |count: usize| {
        let program = program.with_fixed::<T>(&spread[..count]);
        registers::<T>(&program).map(|registers| (program, registers))
    };
    let (program, (registers, sums, lines)) =
        (1..=spread.len()).rev().find_map(|count| fixed(count).ok()).map_or_else(|| fixed(0), Ok)?;
    let (constants, instructions, target) = (vec![], vec![], PhantomData::<T>);
    let mut tables: Vec<&Table> = vec![];
    for source in program.steps.iter().flat_map(|step| &step.sources) {
        match *source {
            Source::Table { table, .. } if !tables.contains(&table) => tables.push(table),
            _ => {}
        }
    }
    let program = &program;
    let mut assembly = Assembly { program, registers, sums, lines, tables, constants, instructions, labels: 0, target };
    assembly.function();
    let block = InstructionBlock::new(&assembly.instructions, 0);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
    // What no instruction reads as one number for all lanes stands there for each.
    let times = if T::HAS_MASKS { 1 } else { T::LANES };
    let constants = assembly.constants.iter().flat_map(|&bits| std::iter::repeat_n(bits, times));
    let tables = assembly.tables.iter().flat_map(|table| table.map(f32::to_bits));
    Ok((encoded.expect("instructions that the encoder knows").code_buffer, tables.chain(constants).collect()))
}

/// The registers of values that have one, of sums, and of lines that are put together, with their addresses.
type Registers = (Vec<Register>, Vec<Register>, Vec<(u16, Register)>);

/// A register for every value that has one, those of sums, and those of lines. A value's register is free again for the result
/// of the last step that reads it.
fn registers<T: Target>(program: &Program) -> Result<Registers, Refused> {
    if !program.sums.is_empty() && T::LANES * program.parts != LANES {
        return Err(Refused::Registers);
    }
    let mut last = vec![0; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        step.reads().for_each(|value| last[usize::from(value)] = i);
    }
    last[..program.fixed].fill(program.steps.len());
    let (first, count) = T::VECTORS;
    let mut vectors: Vec<Register> = (0..count).rev().map(|i| first + i).collect();
    let sums = (0..program.sums.len() * program.parts).map(|_| vectors.pop().ok_or(Refused::Registers));
    let sums = sums.collect::<Result<_, _>>()?;
    let of_line = |step: &Step| match step.to {
        Place::Memory(to) if step.code == T::CODES.store_past_caches => Some(to.address),
        _ => None,
    };
    let of_lines = program.steps.iter().filter_map(of_line).filter(|_| program.cuts_at.is_some());
    let lines = of_lines.map(|address| Ok((address, vectors.pop().ok_or(Refused::Registers)?)));
    let lines = lines.collect::<Result<_, _>>()?;
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
                Place::Mask if T::HAS_MASKS => masks.push(registers[usize::from(value)]),
                _ => vectors.push(registers[usize::from(value)]),
            }
        }
        registers[i] = match step.to {
            _ if over.is_some() => registers[i],
            Place::Mask if T::HAS_MASKS => masks.pop().ok_or(Refused::Registers)?,
            Place::Vector | Place::Mask => vectors.pop().ok_or(Refused::Registers)?,
            Place::Memory(_) | Place::Sum(_) | Place::Nowhere => Register::None,
        };
        if last[i] == 0 {
            // Nobody reads it.
            match step.to {
                Place::Mask if T::HAS_MASKS => masks.push(registers[i]),
                Place::Vector | Place::Mask => vectors.push(registers[i]),
                Place::Memory(_) | Place::Sum(_) | Place::Nowhere => {}
            }
        }
    }
    Ok((registers, sums, lines))
}

struct Assembly<'a, T> {
    program: &'a Program,
    registers: Vec<Register>,
    /// Of each sum one for every vector.
    sums: Vec<Register>,
    /// For the address of each result that goes past the caches the line that is put together, where rows are cut.
    lines: Vec<(u16, Register)>,
    /// They are ahead of the constants, so that each is a line.
    tables: Vec<&'a Table>,
    constants: Vec<u32>,
    instructions: Vec<Instruction>,
    labels: u64,
    target: PhantomData<T>,
}

/// Which elements of a vector are computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// Those of [`TAIL`], which end with it.
    Head,
    /// Those of [`TAIL`], which begin with it.
    Rest,
}

/// A place in the code.
#[derive(Clone, Copy)]
struct Label(u64);

impl<T: Target> Assembly<'_, T> {
    /// For every row the loop over whole vectors, block by block where there are sums, and once the body for the rest if masks say
    /// which elements there are.
    fn function(&mut self) {
        let saved = &ADDRESSES[FREE_TO_USE.min(self.program.addresses)..self.program.addresses.min(ADDRESSES.len())];
        for &register in saved {
            self.add(Instruction::with1(Code::Push_r64, register));
        }
        if T::HAS_MASKS {
            self.add(Instruction::with2(Code::VEX_Kmovd_kr_r32, TAIL, REST));
        }
        for (i, &register) in ADDRESSES.iter().enumerate().take(self.program.addresses) {
            self.address(i as u16, register);
        }
        let [row, last] = std::array::from_fn(|_| self.label());
        self.fixed(|source| !matches!(source, Source::One { .. }));
        self.place(row);
        self.fixed(|source| matches!(source, Source::One { .. }));
        match self.program.cuts_at {
            Some(address) => self.row_of_lines(address),
            None => self.row(),
        }
        let count = self.entry(entries::ROWS);
        self.add(Instruction::with2(Code::Sub_rm64_imm8, count, 1));
        self.add(Instruction::with_branch(Code::Je_rel32_64, last.0));
        for address in 0..self.program.addresses {
            let step = self.entry(entries::ADDRESSES + self.program.addresses + address);
            match ADDRESSES.get(address) {
                Some(&register) => self.add(Instruction::with2(Code::Add_r64_rm64, register, step)),
                None => {
                    self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, step));
                    let entry = self.entry(entries::ADDRESSES + address);
                    self.add(Instruction::with2(Code::Add_rm64_r64, entry, SPARE));
                }
            }
        }
        self.add(Instruction::with_branch(Code::Jmp_rel32_64, row.0));
        self.place(last);
        if self.program.cuts_at.is_some() {
            self.last_line();
        }
        self.add(Ok(Instruction::with(Code::VEX_Vzeroupper)));
        for &register in saved.iter().rev() {
            self.add(Instruction::with1(Code::Pop_r64, register));
        }
        self.add(Ok(Instruction::with(Code::Retnq)));
    }

    /// The elements of a row.
    fn row(&mut self) {
        let [block, start, rest] = std::array::from_fn(|_| self.label());
        let has_blocks = !self.sums.is_empty();
        self.clear_sums();
        self.add(Instruction::with2(Code::Xor_r32_rm32, Register::ECX, Register::ECX));
        self.add(Instruction::with2(Code::Test_rm64_r64, WHOLE, WHOLE));
        self.add(Instruction::with_branch(Code::Je_rel32_64, rest.0));
        self.place(block);
        if has_blocks {
            self.block_end();
        }
        self.place(start);
        self.body(Part::Whole);
        self.add(Instruction::with2(Code::Add_rm64_imm8, INDEX, (T::LANES * self.program.parts) as i32));
        if has_blocks {
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, self.entry(entries::END)));
            self.add(Instruction::with_branch(Code::Jb_rel32_64, start.0));
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, self.entry(entries::LAST)));
            self.add(Instruction::with_branch(Code::Ja_rel32_64, rest.0));
            self.next_block();
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, WHOLE));
            self.add(Instruction::with_branch(Code::Jb_rel32_64, block.0));
        } else {
            self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, WHOLE));
            self.add(Instruction::with_branch(Code::Jb_rel32_64, start.0));
        }
        self.place(rest);
        if T::HAS_MASKS {
            let end = self.label();
            self.add(Instruction::with2(Code::VEX_Kortestw_kr_kr, TAIL, TAIL));
            self.add(Instruction::with_branch(Code::Je_rel32_64, end.0));
            self.body(Part::Rest);
            self.place(end);
        }
        self.store_sums();
    }

    /// The elements of a row, vector by vector as they lie in lines at an address. Those in the line of the row before and in that
    /// of the next one are computed on their own; what goes there is put together in registers.
    fn row_of_lines(&mut self, address: u16) {
        let [lines, start, rest, end] = std::array::from_fn(|_| self.label());
        let (index, spare, lanes) = (Register::ECX, Register::EAX, LANES as i32);
        let base = self.base(address);
        if base != SPARE {
            self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, base));
        }
        self.add(Instruction::with2(Code::Xor_r32_rm32, index, index));
        self.add(Instruction::with1(Code::Neg_rm64, SPARE));
        self.add(Instruction::with2(Code::Shr_rm32_imm8, spare, size_of::<f32>().ilog2()));
        self.add(Instruction::with2(Code::And_rm32_imm8, spare, lanes - 1));
        self.add(Instruction::with_branch(Code::Je_rel32_64, lines.0));
        // The row begins behind the first element of this vector.
        self.add(Instruction::with2(Code::Mov_r64_rm64, INDEX, SPARE));
        self.add(Instruction::with2(Code::Sub_rm64_imm8, INDEX, lanes));
        self.add(Instruction::with1(Code::Neg_rm32, spare));
        self.add(Instruction::with2(Code::Add_rm32_imm8, spare, lanes));
        self.add(Instruction::with3(Code::VEX_Shlx_r32_rm32_r32, spare, self.entry(entries::ONES), spare));
        self.add(Instruction::with2(Code::VEX_Kmovd_kr_r32, TAIL, spare));
        self.body(Part::Head);
        self.add(Instruction::with2(Code::Add_rm64_imm8, INDEX, lanes));
        self.place(lines);
        self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, WHOLE));
        self.add(Instruction::with2(Code::Sub_r64_rm64, SPARE, INDEX));
        self.add(Instruction::with2(Code::And_rm64_imm8, SPARE, -lanes));
        self.add(Instruction::with_branch(Code::Je_rel32_64, rest.0));
        self.add(Instruction::with2(Code::Add_r64_rm64, SPARE, INDEX));
        self.add(Instruction::with2(Code::Mov_rm64_r64, self.entry(entries::END), SPARE));
        self.place(start);
        self.body(Part::Whole);
        self.add(Instruction::with2(Code::Add_rm64_imm8, INDEX, lanes));
        self.add(Instruction::with2(Code::Cmp_r64_rm64, INDEX, self.entry(entries::END)));
        self.add(Instruction::with_branch(Code::Jb_rel32_64, start.0));
        self.place(rest);
        self.add(Instruction::with3(Code::VEX_Kxorw_kr_kr_kr, TAIL, TAIL, TAIL));
        self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, WHOLE));
        self.add(Instruction::with2(Code::Sub_r64_rm64, SPARE, INDEX));
        self.add(Instruction::with_branch(Code::Je_rel32_64, end.0));
        self.add(Instruction::with3(Code::VEX_Bzhi_r32_rm32_r32, spare, self.entry(entries::ONES), spare));
        self.add(Instruction::with2(Code::VEX_Kmovd_kr_r32, TAIL, spare));
        self.body(Part::Rest);
        self.place(end);
    }

    /// Stores the elements in the line behind the last whole one of the last row.
    fn last_line(&mut self) {
        let end = self.label();
        self.add(Instruction::with2(Code::VEX_Kortestw_kr_kr, TAIL, TAIL));
        self.add(Instruction::with_branch(Code::Je_rel32_64, end.0));
        for (address, line) in self.lines.clone() {
            let to = Place::Memory(Elements { address, bytes: size_of::<f32>() as u32, part: 0 });
            self.store_line(T::CODES.store, to, line, true);
        }
        self.place(end);
    }

    /// Puts elements of a vector into the line that is put together, and stores this when it is whole.
    fn put_in_line(&mut self, step: &Step, line: Register, part: Part) {
        let &[Source::Value(value)] = &step.sources[..] else { unreachable!("what is stored is in a register") };
        let mut put = Instruction::default();
        put.set_code(T::CODES.copy);
        self.register(&mut put, 0, line);
        self.register(&mut put, 1, self.registers[usize::from(value)]);
        put.set_op_mask(TAIL);
        self.instructions.push(put);
        if part == Part::Head {
            self.store_line(step.code, step.to, line, false);
        }
    }

    fn store_line(&mut self, code: Code, to: Place, line: Register, masked: bool) {
        let Place::Memory(elements) = to else { unreachable!("lines go to memory") };
        let mut store = Instruction::default();
        store.set_code(code);
        self.elements(&mut store, 0, elements);
        self.register(&mut store, 1, line);
        if masked {
            store.set_op_mask(TAIL);
        }
        self.instructions.push(store);
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

    /// An entry of the table.
    fn entry(&self, index: usize) -> MemoryOperand {
        MemoryOperand::with_base_displ(TABLE, index as i64 * 8)
    }

    /// Brings an address into a register.
    fn address(&mut self, address: u16, register: Register) {
        let entry = self.entry(entries::ADDRESSES + usize::from(address));
        self.add(Instruction::with2(Code::Mov_r64_rm64, register, entry));
    }

    /// The steps before the loop that read such a number.
    fn fixed(&mut self, reads: impl Fn(Source) -> bool) {
        for (i, step) in self.program.steps.iter().enumerate().take(self.program.fixed) {
            if reads(step.sources[0]) {
                self.step(i, step, Part::Whole);
            }
        }
    }

    /// Everything for one vector, of which there may be the elements of [`TAIL`] alone.
    fn body(&mut self, part: Part) {
        for (i, step) in self.program.steps.iter().enumerate().skip(self.program.fixed) {
            self.step(i, step, part);
        }
    }

    /// The last blocks of rows end with their last whole vector.
    fn block_end(&mut self) {
        self.add(Instruction::with2(Code::Mov_r64_rm64, SPARE, INDEX));
        self.add(Instruction::with2(Code::Add_rm64_imm32, SPARE, self.program.block as i32));
        self.add(Instruction::with2(Code::Cmp_r64_rm64, SPARE, WHOLE));
        self.add(Instruction::with2(Code::Cmova_r64_rm64, SPARE, WHOLE));
        self.add(Instruction::with2(Code::Mov_rm64_r64, self.entry(entries::END), SPARE));
    }

    /// Ends the lanes of a block behind which another one follows.
    fn next_block(&mut self) {
        self.store_sums();
        for address in self.program.sums.iter().map(|&address| usize::from(address)) {
            let line = (LANES * size_of::<f32>()) as i32;
            match ADDRESSES.get(address) {
                Some(&register) => self.add(Instruction::with2(Code::Add_rm64_imm32, register, line)),
                None => {
                    let entry = self.entry(entries::ADDRESSES + address);
                    self.add(Instruction::with2(Code::Add_rm64_imm32, entry, line));
                }
            }
        }
        self.clear_sums();
    }

    fn clear_sums(&mut self) {
        for sum in self.sums.clone() {
            self.add(Instruction::with3(T::CODES.xor, sum, sum, sum));
        }
    }

    /// Stores the lanes of a block.
    fn store_sums(&mut self) {
        let parts = self.program.parts;
        for (i, sum) in self.sums.clone().into_iter().enumerate() {
            let base = self.base(self.program.sums[i / parts]);
            let place = MemoryOperand::with_base_displ(base, (i % parts * T::LANES * size_of::<f32>()) as i64);
            self.add(Instruction::with2(T::CODES.store, place, sum));
        }
    }

    fn step(&mut self, i: usize, step: &Step, part: Part) {
        let is_part = part != Part::Whole && step.to != Place::Nowhere;
        let line = match step.to {
            Place::Memory(to) if is_part && step.code == T::CODES.store_past_caches => {
                self.lines.iter().find(|(address, _)| *address == to.address)
            }
            _ => None,
        };
        if let Some(&(_, line)) = line {
            return self.put_in_line(step, line, part);
        }
        let mut instruction = Instruction::default();
        instruction.set_code(step.code);
        let mut operand = 0;
        match step.to {
            Place::Nowhere => {}
            Place::Sum(sum) => {
                self.register(&mut instruction, operand, self.sums[usize::from(sum)]);
                if is_part {
                    instruction.set_op_mask(TAIL);
                }
            }
            Place::Memory(elements) => {
                self.elements(&mut instruction, operand, elements);
                if is_part {
                    if step.code == T::CODES.store_past_caches {
                        // Only whole lines go past the caches.
                        instruction.set_code(T::CODES.store);
                    }
                    instruction.set_op_mask(TAIL);
                }
            }
            _ => self.register(&mut instruction, operand, self.registers[i]),
        }
        let mut sources = &step.sources[..];
        if step.over {
            let Source::Value(value) = sources[0] else { unreachable!("what is given a result is in a register") };
            let (from, to) = (self.registers[usize::from(value)], self.registers[i]);
            if from != to {
                self.add(Instruction::with2(T::CODES.copy, to, from));
            }
            sources = &sources[1..];
        }
        operand += u32::from(step.to != Place::Nowhere);
        for &source in sources {
            match source {
                Source::Sum(sum) => self.register(&mut instruction, operand, self.sums[usize::from(sum)]),
                Source::Value(value) => self.register(&mut instruction, operand, self.registers[usize::from(value)]),
                Source::Constant(bits) => {
                    let place = self.constants.iter().position(|&known| known == bits).unwrap_or_else(|| {
                        self.constants.push(bits);
                        self.constants.len() - 1
                    });
                    let numbers = if T::HAS_MASKS { 1 } else { T::LANES };
                    let tables = self.tables.len() * size_of::<Table>();
                    constant(&mut instruction, operand, tables + 4 * numbers * place);
                    // A broadcast itself reads one number.
                    instruction.set_is_broadcast(T::HAS_MASKS && step.code != T::CODES.broadcast);
                }
                Source::Table { table, first } => {
                    let place = self.tables.iter().position(|known| *known == table).expect("a table of the program");
                    constant(&mut instruction, operand, place * size_of::<Table>() + 4 * usize::from(first));
                }
                Source::One { address } => {
                    let base = self.base(address);
                    instruction.set_op_kind(operand, OpKind::Memory);
                    instruction.set_memory_base(base);
                }
                Source::Memory(elements) => {
                    self.elements(&mut instruction, operand, elements);
                    if is_part {
                        instruction.set_op_mask(TAIL);
                        instruction.set_zeroing_masking(true);
                    }
                }
            }
            operand += 1;
        }
        if let Some(immediate) = step.immediate {
            instruction.set_op_kind(operand, OpKind::Immediate8);
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

    /// The elements of a vector at an address.
    fn elements(&mut self, instruction: &mut Instruction, operand: u32, elements: Elements) {
        let Elements { address, bytes, part } = elements;
        let base = self.base(address);
        instruction.set_op_kind(operand, OpKind::Memory);
        instruction.set_memory_base(base);
        instruction.set_memory_index(INDEX);
        instruction.set_memory_index_scale(bytes);
        instruction.set_memory_displacement64((part * bytes) as u64 * T::LANES as u64);
        instruction.set_memory_displ_size(1);
    }

    /// Makes a register an operand, by the name of the part that the instruction works on.
    fn register(&self, instruction: &mut Instruction, operand: u32, register: Register) {
        let named = match T::part(instruction.code(), operand) {
            Some(first) if !register.is_k() => first + (register as u32 - T::VECTORS.0 as u32),
            _ => register,
        };
        instruction.set_op_kind(operand, OpKind::Register);
        instruction.set_op_register(operand, named);
    }
}

/// Makes an operand of what is so many bytes behind the beginning of the constants.
fn constant(instruction: &mut Instruction, operand: u32, bytes: usize) {
    instruction.set_op_kind(operand, OpKind::Memory);
    instruction.set_memory_base(CONSTANTS);
    instruction.set_memory_displacement64(bytes as u64);
    instruction.set_memory_displ_size(8);
}
