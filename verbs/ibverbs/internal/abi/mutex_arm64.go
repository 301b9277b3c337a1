package abi

const mutexWords = 6
