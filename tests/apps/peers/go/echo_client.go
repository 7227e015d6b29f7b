// Echo client as a static Go program: it makes its system calls itself, so no library can be put before them.
// Usage: echo_client PORT CONNECTIONS. Compares every byte that comes back.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"strconv"
)

const (
	roundTrips  = 50
	streamBytes = 500_000
)

func content(seed, size int) []byte {
	data := make([]byte, size)
	rand.New(rand.NewSource(int64(seed))).Read(data)
	return data
}

func talk(port string, seed int) (int, error) {
	dialed, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return 0, err
	}
	connection := dialed.(*net.TCPConn)
	defer connection.Close()
	sent := 0
	for trip := 0; trip < roundTrips; trip++ {
		message := content(seed*1000+trip, 1+(seed*37+trip*101)%3000)
		if _, err := connection.Write(message); err != nil {
			return 0, err
		}
		answer := make([]byte, len(message))
		if _, err := io.ReadFull(connection, answer); err != nil {
			return 0, err
		}
		if !bytes.Equal(answer, message) {
			return 0, fmt.Errorf("round trip %d came back changed", trip)
		}
		sent += len(message)
	}
	stream := content(seed, streamBytes)
	failed := make(chan error, 1)
	go func() {
		_, err := connection.Write(stream)
		if err == nil {
			err = connection.CloseWrite()
		}
		failed <- err
	}()
	answer, err := io.ReadAll(connection)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(answer, stream) {
		return 0, fmt.Errorf("the stream came back changed: %d bytes", len(answer))
	}
	return sent + streamBytes, <-failed
}

func main() {
	connections, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	type outcome struct {
		bytes int
		err   error
	}
	outcomes := make(chan outcome)
	for number := 0; number < connections; number++ {
		go func(seed int) {
			sent, err := talk(os.Args[1], seed)
			outcomes <- outcome{sent, err}
		}(number)
	}
	total := 0
	for number := 0; number < connections; number++ {
		done := <-outcomes
		if done.err != nil {
			fmt.Fprintln(os.Stderr, "client:", done.err)
			os.Exit(1)
		}
		total += done.bytes
	}
	fmt.Printf("{\"connections\": %d, \"bytes\": %d}\n", connections, total)
}
