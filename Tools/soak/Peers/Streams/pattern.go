package main

import (
	"bytes"
	"encoding/binary"
	"math/rand"
)

const step = 0x9e3779b97f4a7c15

// Fills bytes that follow from a number, starting at an offset. See Sources/soak/Pattern.swift.
func fill(seed uint64, offset int, into []byte) {
	var word [8]byte
	for done := 0; done < len(into); {
		number := uint64(offset+done) / 8
		mixed := seed + (number+1)*step
		mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9
		mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(word[:], mixed^(mixed>>31))
		done += copy(into[done:], word[(offset+done)%8:])
	}
}

func pattern(seed uint64, count int) []byte {
	result := make([]byte, count)
	fill(seed, 0, result)
	return result
}

// Returns whether the bytes are the pattern's at an offset.
func matches(seed uint64, offset int, data []byte) bool {
	expected := make([]byte, len(data))
	fill(seed, offset, expected)
	return bytes.Equal(data, expected)
}

// What happens during or after an exchange. See Sources/soak/Exchange.swift.
const (
	endNone = iota
	endHalfClose
	endReset
	endCut
	endClose
)

var endNames = []string{"none", "halfClose", "reset", "cut", "close"}

const headerLength = 24
const mark = 0x4b414f53 // "SOAK"

type exchange struct {
	end            int
	request, reply int
	seed           uint64
}

func (e exchange) sent() int {
	if e.end == endReset {
		return e.reply / 2
	}
	return e.reply
}

func parse(header []byte) (exchange, bool) {
	end := int(binary.LittleEndian.Uint32(header))
	return exchange{
		end: end, request: int(binary.LittleEndian.Uint32(header[4:])), reply: int(binary.LittleEndian.Uint32(header[8:])),
		seed: binary.LittleEndian.Uint64(header[16:]),
	}, binary.LittleEndian.Uint32(header[12:]) == mark && end < len(endNames)
}

func (e exchange) header() []byte {
	header := make([]byte, headerLength)
	binary.LittleEndian.PutUint32(header, uint32(e.end))
	binary.LittleEndian.PutUint32(header[4:], uint32(e.request))
	binary.LittleEndian.PutUint32(header[8:], uint32(e.reply))
	binary.LittleEndian.PutUint32(header[12:], mark)
	binary.LittleEndian.PutUint64(header[16:], e.seed)
	return header
}

func length(choices *rand.Rand) int {
	limit := 400_000
	switch number := choices.Intn(100); {
	case number < 70:
		limit = 1_000
	case number < 95:
		limit = 16_000
	case number < 99:
		limit = 100_000
	}
	return 1 + choices.Intn(limit)
}

func choose(choices *rand.Rand, canHalfClose bool) exchange {
	end := endClose
	switch number := choices.Intn(100); {
	case number < 80:
		end = endNone
	case number < 85:
		end = endNone
		if canHalfClose {
			end = endHalfClose
		}
	case number < 89:
		end = endReset
	case number < 95:
		end = endCut
	}
	return exchange{end: end, request: length(choices), reply: 1 + length(choices), seed: choices.Uint64()}
}
