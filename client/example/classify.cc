// Says what a question asks for: classify [ADDRESS], of a server with the bundled models.
#include <iostream>

#include "client/client.h"

int main(int argc, char** argv) {
  sru::client::ConnectOptions options;  // localhost:50051
  if (argc > 1) options.address = argv[1];
  auto client = sru::client::Client::Create(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  sru::v1::ClassifyRequest request;
  *request.add_sequences() = sru::client::TextSequence("Where is Lake Titicaca ?");
  auto response = (*client)->Classify(request);
  if (!response.ok()) {
    std::cerr << response.status() << "\n";
    return 1;
  }
  std::cout << response->classifications(0).labels(0).name() << "\n";
}
