// For Go 1.19 (Debian 12's) and later.
// peer serve ADDRESS | fetch URL CLIENTS ROUNDS: a server of bytes that are known, and a client that compares them.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func known(length int) []byte {
	made := make([]byte, length)
	rand.New(rand.NewSource(int64(length))).Read(made)
	return made
}

func serve(address string) error {
	http.HandleFunc("/bytes", func(answer http.ResponseWriter, question *http.Request) {
		length, _ := strconv.Atoi(question.FormValue("n"))
		answer.Write(known(length))
	})
	http.HandleFunc("/sum", func(answer http.ResponseWriter, question *http.Request) {
		sum := sha256.New()
		io.Copy(sum, question.Body)
		fmt.Fprintf(answer, "%x", sum.Sum(nil))
	})
	return http.ListenAndServe(address, nil)
}

func ask(answer *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

func exchange(client *http.Client, url string, length int) error {
	wanted := known(length)
	got, err := ask(client.Get(fmt.Sprintf("%s/bytes?n=%d", url, length)))
	if err != nil || !bytes.Equal(got, wanted) {
		return fmt.Errorf("get %d bytes: %d came, %v", length, len(got), err)
	}
	sum, err := ask(client.Post(url+"/sum", "application/octet-stream", bytes.NewReader(wanted)))
	if err != nil || string(sum) != fmt.Sprintf("%x", sha256.Sum256(wanted)) {
		return fmt.Errorf("post %d bytes: %s, %v", length, sum, err)
	}
	return nil
}

func fetch(url string, clients, rounds int) error {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	failures := make(chan error, clients)
	var all sync.WaitGroup
	all.Add(clients)
	for number := 0; number < clients; number++ {
		go func(number int) {
			defer all.Done()
			sizes := rand.New(rand.NewSource(int64(number)))
			for round := 0; round < rounds; round++ {
				if err := exchange(client, url, 1+sizes.Intn(1<<sizes.Intn(20))); err != nil {
					failures <- err
					return
				}
			}
		}(number)
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func main() {
	var err error
	if os.Args[1] == "serve" {
		err = serve(os.Args[2])
	} else {
		clients, _ := strconv.Atoi(os.Args[3])
		rounds, _ := strconv.Atoi(os.Args[4])
		err = fetch(os.Args[2], clients, rounds)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("all is well")
}
