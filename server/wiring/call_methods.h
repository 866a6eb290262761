// CallMethods: the tables of both ports' methods, and what the methods work with.
#ifndef SRU_SERVER_WIRING_CALL_METHODS_H_
#define SRU_SERVER_WIRING_CALL_METHODS_H_

#include <memory>

#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"
#include "server/open_inference/open_inference_methods.h"
#include "server/rpc/health.h"
#include "server/wiring/served_models.h"
#include "server/wiring/shared.h"

namespace sru::server::wiring {

class CallMethods {
 public:
  // When the models are loaded.
  void Make(Shared* shared, ServedModels* models);

  // Of the ports for callers, and of the admin port; null before Make().
  const calls::MethodTable* table() const { return methods_.get(); }
  const calls::MethodTable* admin_table() const { return admin_methods_.get(); }

 private:
  rpc::Health admin_health_;  // of the admin port, which serves as long as it is there
  calls::ServiceContext service_context_;
  calls::AdminContext admin_context_;
  open_inference::OpenInferenceContext open_inference_context_;
  std::unique_ptr<calls::MethodTable> methods_;
  std::unique_ptr<calls::MethodTable> admin_methods_;
};

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_CALL_METHODS_H_
